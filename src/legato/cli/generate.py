"""``legato generate``: prompts in, text or JSON out. Owns what goes to which stream.

Standard output has the answers and nothing else; progress, speed and tables go to standard error.
"""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from legato.cli.prompts import Prompt, chat_messages, typed_prompts
from legato.cli.sampling_options import SamplingOptions
from legato.cli.speed import Stopwatch, acceptance_line
from legato.config.options import EngineOptions

if TYPE_CHECKING:  # the engine imports torch
    from legato.engine.llm import LLM
    from legato.flow.sampling_params import SamplingParams


def generate(
    prompts: Annotated[list[str] | None, typer.Argument(help="Texts to continue; several run as one batch.")] = None,
    *,
    prompt_token_ids: Annotated[
        str | None, typer.Option(metavar="JSON", help="Token ids instead of text: [1, 2], or several: [[1, 2], [3]].")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Each prompt is a message to a chat model.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message, with --chat.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per prompt.")] = False,
    stream: Annotated[bool, typer.Option(help="Print a single answer as it comes.")] = True,
    show_graphs: Annotated[bool, typer.Option("--show-graphs", help="Show which graphs were replayed.")] = False,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Continue prompts, or answer them with --chat.

    Examples:

    - `legato generate "The capital of France is"`
    - `legato generate --chat "Why is the sky blue?" --show-graphs`
    - `legato generate --json --prompt-token-ids "[[504, 3575], [28]]"`
    """
    typed = typed_prompts(prompts or [], prompt_token_ids)
    params = sampling.params(engine.seed)
    from legato.cli.tables import steps_table
    from legato.engine.llm import LLM

    console = Console(stderr=True)
    llm = LLM(engine.sized_for(len(typed) * params.n), console=console)
    watch = Stopwatch()
    if len(typed) == 1 and params.n == 1 and stream and not as_json:
        _stream(llm, typed[0], params, watch, chat=chat, system=system)
    else:
        _batch(llm, typed, params, watch, chat=chat, system=system, as_json=as_json)
    console.print(watch.line(), style="dim", highlight=False)
    if acceptance := acceptance_line(llm.stats()):
        console.print(acceptance, style="dim", highlight=False)
    if show_graphs:
        console.print(steps_table(llm.stats()))


def _stream(
    llm: "LLM", prompt: Prompt, params: "SamplingParams", watch: Stopwatch, *, chat: bool, system: str | None
) -> None:
    from legato.cli.answers import print_stream

    if chat and isinstance(prompt, str):
        print_stream(llm.stream_chat(chat_messages(prompt, system), params), watch)
    else:
        print_stream(llm.stream(prompt, params), watch)


def _batch(
    llm: "LLM",
    prompts: list[Prompt],
    params: "SamplingParams",
    watch: Stopwatch,
    *,
    chat: bool,
    system: str | None,
    as_json: bool,
) -> None:
    """Run all prompts as one batch, and print when all have ended."""
    from legato.cli.answers import print_json, print_texts, raise_error

    if chat:
        prompts = [_written_out(llm, prompt, system) for prompt in prompts]
    outputs = llm.generate(prompts, params)
    watch.finish(sum(len(completion.token_ids) for output in outputs for completion in output.outputs))
    (print_json if as_json else print_texts)(outputs)
    for output in outputs:
        raise_error(output)


def _written_out(llm: "LLM", prompt: Prompt, system: str | None) -> Prompt:
    """Return a question as the model's chat template writes it, in token ids; token ids as they are."""
    if not isinstance(prompt, str):
        return prompt
    return list(llm.input.token_ids(llm.input.chat_prompt(chat_messages(prompt, system)), add_special_tokens=False))
