"""The same requests through another load generator, LLMeter, as a check of ``legato bench serve``.

LLMeter (https://pypi.org/project/llmeter/, with ``pip install 'llmeter[openai]'``, into an environment of its own) asks
through OpenAI's client, in threads, and has code of its own for every figure. It asks the prompts of a file in a closed
loop, and its figures are written beside those of ``legato bench serve`` for the same load, to be compared by it::

    legato bench serve --base-url URL --endpoint chat --dataset custom --dataset-path prompts.jsonl --num-prompts 64 \
        --max-concurrency 4 --output-len 64 --ignore-eos --save ours.json
    python benchmarks/llmeter_client.py --like ours.json --base-url URL --prompts prompts.jsonl --output-len 64 \
        --save llmeter.json
    legato bench serve --compare ours.json llmeter.json

Repetitions are as many as in the file of ours, whose machine and commit are written down too, not read anew.
"""

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

from llmeter.endpoints import OpenAICompletionStreamEndpoint
from llmeter.runner import Runner


def main() -> None:
    """Ask as often as the file of ours has runs, and write a row for each."""
    options = argparse.ArgumentParser()
    for name in ("--like", "--base-url", "--prompts", "--save"):
        options.add_argument(name, required=True)
    options.add_argument("--output-len", type=int, required=True)
    options.add_argument("--api-key", default="none")
    typed = options.parse_args()
    file = json.loads(Path(typed.like).read_text())
    prompts = [json.loads(line)["prompt"] for line in Path(typed.prompts).read_text().splitlines() if line.strip()]
    file["rows"] = [measured(row, typed, prompts) for row in file["rows"]]
    file["command"] = f"python benchmarks/llmeter_client.py --output-len {typed.output_len}"
    Path(typed.save).write_text(json.dumps(file, indent=2) + "\n")


def measured(row: dict, typed: argparse.Namespace, prompts: list[str]) -> dict:
    """Return LLMeter's row for the load of one of ours."""
    base_url = typed.base_url.rstrip("/").removesuffix("/v1") + "/v1"
    endpoint = OpenAICompletionStreamEndpoint(row["model"], api_key=typed.api_key, base_url=base_url)
    extra = {"ignore_eos": True}
    payloads = [
        endpoint.create_payload(prompt, max_tokens=typed.output_len, temperature=0.0, extra_body=extra)
        for prompt in prompts
    ]
    clients = row["max_concurrency"]
    started = time.perf_counter()
    run = Runner(endpoint).run(payload=payloads, n_requests=row["num_requests"] // clients, clients=clients)
    result = asyncio.run(run)
    seconds = time.perf_counter() - started
    good = [response for response in result.responses if response.error is None]
    first, last = ([getattr(one, f"time_to_{which}_token") for one in good] for which in ("first", "last"))
    per_token = [(end - begin) / (one.num_tokens_output - 1) for one, begin, end in zip(good, first, last, strict=True)]
    return {
        "engine": "server, by LLMeter",
        **{name: row[name] for name in ("model", "case", "repetition", "dataset", "endpoint", "max_concurrency")},
        "completed": len(good),
        "failed": len(result.responses) - len(good),
        "input_tokens": sum(one.num_tokens_input for one in good),
        "output_tokens": sum(one.num_tokens_output for one in good),
        "seconds": seconds,
        "ttft_ms": latencies(first),
        "tpot_ms": latencies(per_token),
        "e2e_ms": latencies(last),
    }


def latencies(seconds: list[float]) -> dict[str, float]:
    """Return mean, median and 99th percentile in milliseconds."""
    values = [value * 1e3 for value in seconds]
    p99 = statistics.quantiles(values, n=100, method="inclusive")[-1]
    return {"mean": statistics.fmean(values), "median": statistics.median(values), "p99": p99}


if __name__ == "__main__":
    main()
