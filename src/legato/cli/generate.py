"""``legato generate``: prompts in, text or JSON out. Owns what goes to which stream.

Standard output has the answers and nothing else; progress, speed and tables go to standard error.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from legato.cli.prompts import Prompt, chat_messages, typed_prompts
from legato.cli.sampling_options import SamplingOptions
from legato.cli.speed import Stopwatch
from legato.cli.tables import steps_table
from legato.config.options import EngineOptions

if TYPE_CHECKING:  # the engine imports torch
    from legato.engine.llm import LLM
    from legato.flow.request_output import CompletionOutput, RequestOutput


def generate(
    prompts: Annotated[list[str] | None, typer.Argument(help="Texts to continue; several run as one batch.")] = None,
    *,
    prompt_token_ids: Annotated[
        str | None, typer.Option(metavar="JSON", help="Token ids instead of text: [1, 2], or several: [[1, 2], [3]].")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Each prompt is a message to a chat model.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per prompt.")] = False,
    stream: Annotated[
        bool | None, typer.Option(help="Print text as it comes; the default for one prompt with one output.")
    ] = None,
    show_graphs: Annotated[bool, typer.Option("--show-graphs", help="Show which graphs were replayed.")] = False,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Continue prompts, or answer them with --chat.

    Examples: `legato generate "The capital of France is"` · `legato generate --chat "Why is the sky blue?"` ·
    `legato generate --json --prompt-token-ids "[504, 3575]" --load-format dummy --model ./config-only`
    """
    typed = typed_prompts(prompts or [], prompt_token_ids)
    params = sampling.params(engine.seed)
    from legato.engine.llm import LLM

    console = Console(stderr=True)
    llm = LLM(engine, console=console)
    streams = not as_json and len(typed) == 1 and params.n == 1 if stream is None else stream
    watch = Stopwatch()
    outputs = _run(llm, typed, params, chat=chat, system=system, watch=watch, streams=streams)
    _print_outputs(outputs, as_json=as_json, streamed=streams)
    console.print(watch.line(), style="dim")
    if show_graphs:
        console.print(steps_table(llm.stats()))
