"""``legato bench drafter``: a drafter on given prompts. Owns the command, its options, and prompts as tokens."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from legato.cli import bench_tables
from legato.cli.bench_engines import drafting_engines, resolved_config
from legato.cli.bench_options import RESULT, WORKLOAD, OutputOptions
from legato.cli.bench_progress import measuring
from legato.cli.bench_result import hand_over
from legato.config.options import EngineOptions, option
from legato.errors import ConfigError

if TYPE_CHECKING:  # they import torch
    from legato.config.engine import EngineConfig
    from legato.config.speculative import SpeculativeConfig
    from legato.flow.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterOptions:
    """What ``legato bench drafter`` measures."""

    num_prompts: int | None = option(None, "First prompts of the files; default: all.", panel=WORKLOAD)
    max_tokens: int = option(512, "Tokens of each answer at most; it ends where the model ends it.", panel=WORKLOAD)
    batch_size: tuple[int, ...] = option(
        (1, 8), "Requests at once; several sizes are measured one by one.", metavar="N,N,…", panel=WORKLOAD
    )
    peer: str = option(
        "none", "Engine to measure in the same run, with the same drafter.", choices=("none", "vllm"), panel=WORKLOAD
    )
    peer_alone: bool = option(
        False, "Measure the peer by itself, on a device that cannot hold both engines.", panel=WORKLOAD
    )
    case: str | None = option(
        None,
        "Name of the row; default: that of the drafter, 'eagle3-k3'. Several sizes are named 'eagle3-k3-b8'.",
        panel=RESULT,
    )

    def cases(self, drafter: str) -> tuple[tuple[str, int], ...]:
        """Return (name, requests at once) of each row."""
        name = self.case or drafter
        if len(self.batch_size) == 1:
            return ((name, self.batch_size[0]),)
        return tuple((f"{name}-b{size}", size) for size in self.batch_size)


def drafter(
    *,
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Prompts, in the forms that `legato train-drafter` reads; repeat for several files.",
            rich_help_panel=WORKLOAD,
        ),
    ],
    workload: DrafterOptions,
    output: OutputOptions,
    engine: EngineOptions,
) -> None:
    """Measure a drafter on real prompts: tokens of a round, acceptance by position, speed over plain decoding.

    Answers are greedy, and no prefix is cached. A second engine without the drafter answers the same prompts: the two
    share the weights, and each has half of the memory for the cache.

    Examples:

    - `legato bench drafter --data chat.jsonl --speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'`
    - `legato bench drafter --data chat.jsonl --batch-size 1,8,32 --peer vllm --peer-alone --speculative-config "$HEAD"`
    """
    from legato.bench.drafter import DrafterRow, DrafterWorkload, measure_drafter
    from legato.bench.request_loop import Asked
    from legato.bench.speculation import AUTO, case_of

    console = Console(stderr=True)
    engine = replace(engine.sized_for(max(workload.batch_size)), prefix_caching=False)
    config = resolved_config(engine)
    speculative = _drafter_of(config)
    requests = _requests([Path(name) for name in data], workload, engine, config)
    backend = None if engine.attention_backend == "auto" else config.attention_backend
    what = DrafterWorkload(
        method=speculative.method,
        num_speculative_tokens=AUTO if speculative.chosen_per_step else speculative.num_speculative_tokens,
        asked=tuple(
            Asked(prompt=request.prompt_token_ids, output_len=min(workload.max_tokens, request.max_tokens))
            for request in requests
        ),
        max_tokens=workload.max_tokens,
        end_token_ids=requests[0].stop_token_ids,
        cases=workload.cases(case_of(speculative, backend)),
    )
    rows: list[DrafterRow] = []
    for drafting, plain in drafting_engines(workload.peer, engine, config, console, peer_alone=workload.peer_alone):
        with measuring(console, "measuring", len(what.cases)) as report:
            rows += measure_drafter(drafting, plain, what, report)
    hand_over(rows, (bench_tables.drafter_table(rows),), config.device, output)


def _drafter_of(config: "EngineConfig") -> "SpeculativeConfig":
    """Return the drafter. Raises ConfigError where none was named, or its acceptance does not come from the text."""
    found = config.speculative
    if found is None:
        options = '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\''
        raise ConfigError("there is no drafter to measure", {"options": options})
    if found.acceptance_rates:
        details = {"requested": "synthetic acceptance", "options": "legato bench speculation | leave it out"}
        raise ConfigError("drafts on real prompts stand or fall by the model", details)
    return found


def _requests(
    files: list[Path], workload: DrafterOptions, engine: EngineOptions, config: "EngineConfig"
) -> "list[Request]":
    """Return the prompts as the model's chat template writes them, each with the room that it leaves."""
    from legato.engine.input_processor import InputProcessor
    from legato.flow.sampling_params import SamplingParams
    from legato.loading.load_tokenizer import load_tokenizer
    from legato.loading.source import resolve_model
    from legato.training.prompts import read_prompts
    from legato.training.questions import prompt_token_ids

    for name, value in (("--num-prompts", workload.num_prompts), ("--max-tokens", workload.max_tokens)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is out of range", {"requested": value, "limit": "at least 1"})
    tokenizer = load_tokenizer(resolve_model(engine.model, engine.load_format))
    processor = InputProcessor(tokenizer, config)
    params = SamplingParams(max_tokens=None)
    return [
        request
        for prompt in read_prompts(files)[: workload.num_prompts]
        for request in processor.process("prompt", prompt_token_ids(processor, tokenizer, prompt), params)
    ]
