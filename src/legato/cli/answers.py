"""RequestOutputs -> standard output, as text or JSON. Owns both forms."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from legato.cli.speed import Stopwatch
from legato.errors import EngineDeadError
from legato.flow.request_output import CompletionOutput, RequestOutput


def print_stream(deltas: Iterable[RequestOutput], watch: Stopwatch) -> None:
    """Print outputs as they come. Token ids stand in for text where there is no tokenizer."""
    for delta in deltas:
        raise_error(delta)
        for completion in delta.outputs:
            watch.see(len(completion.token_ids))
            print(_shown(delta, completion), end="", flush=True)
    print()


def print_texts(outputs: Sequence[RequestOutput]) -> None:
    """Print every output; with more than one, each below its prompt."""
    several = sum(len(output.outputs) for output in outputs) > 1
    for output in outputs:
        for completion in output.outputs:
            if several:
                print(f"> {output.prompt if output.prompt is not None else list(output.prompt_token_ids)}")
            print(_shown(output, completion))


def print_json(outputs: Iterable[RequestOutput]) -> None:
    """Print one JSON object per prompt, one per line."""
    for output in outputs:
        print(json.dumps(json_object(output), ensure_ascii=False))


def json_object(output: RequestOutput) -> dict[str, Any]:
    """Return the first output beside its prompt; with ``n > 1`` all of them under ``outputs`` too."""
    fields = {
        "prompt": output.prompt,
        "prompt_token_ids": list(output.prompt_token_ids),
        **_completion_fields(output.outputs[0]),
    }
    if len(output.outputs) > 1:
        fields["outputs"] = [_completion_fields(completion) for completion in output.outputs]
    return fields


def raise_error(output: RequestOutput) -> None:
    """Raise EngineDeadError where an output ended with an error."""
    if output.error is not None:
        raise EngineDeadError("the request failed while it was running", {"found": output.error})


def _completion_fields(completion: CompletionOutput) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "token_ids": list(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
    }
    if completion.logprobs:
        fields["logprobs"] = [asdict(logprobs) for logprobs in completion.logprobs]
    return fields


def _shown(output: RequestOutput, completion: CompletionOutput) -> str:
    if output.prompt is not None:
        return completion.text
    return "".join(f"{token_id} " for token_id in completion.token_ids)
