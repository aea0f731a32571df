"""``legato eval``: accuracy on questions with known answers. Owns the options and whom they ask; judges nothing."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from legato.cli.bench_options import OutputOptions
from legato.cli.bench_result import hand_over
from legato.cli.dataclass_options import takes_options
from legato.cli.eval_report import answering, report_tables, show_differences
from legato.config.options import EngineOptions, option
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy

if TYPE_CHECKING:  # they import torch
    from legato.eval.questions import Questions
    from legato.eval.row import EvalRow

QUESTIONS = "Questions"
COMPARISON = "Comparison"

app = typer.Typer(help="Measure accuracy on questions with known answers.", no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gsm8kOptions:
    """What ``legato eval gsm8k`` asks, and of whom, as typed."""

    examples: str | None = option(
        None,
        "File that worked examples are drawn from, such as train.jsonl; default: the questions' own file.",
        metavar="FILE",
        panel=QUESTIONS,
    )
    num_questions: int | None = option(
        None, "First questions of the file that are asked; default: all.", panel=QUESTIONS
    )
    num_shots: int = option(5, "Worked examples before each question.", panel=QUESTIONS)
    shots_seed: int = option(1234, "Seed of the draws of examples; the default is the harness's.", panel=QUESTIONS)
    chat: bool = option(
        False, "Ask in the model's chat format; worked examples are turns of the conversation.", panel=QUESTIONS
    )
    max_tokens: int = option(256, "Tokens of each answer at most.", panel=QUESTIONS)
    base_url: str | None = option(
        None, "Ask this server instead of an engine in this process.", metavar="URL", panel=QUESTIONS
    )
    api_key: str | None = option(None, "Key that the server wants.", panel=QUESTIONS)
    concurrency: int = option(16, "Questions at once, for a server.", panel=QUESTIONS)
    compare_policies: bool = option(
        False, "Ask under every graph policy, and hold the answers to each other.", panel=COMPARISON
    )
    policy: tuple[str, ...] = option(
        (),
        "Graph policy to compare; repeat for several. The first is what others are held to. Default: all.",
        choices=tuple(map(str, GraphPolicy)),
        panel=COMPARISON,
    )
    backends: str | None = option(
        None, "Attention backends to compare, each under every policy.", metavar="NAME,NAME,…", panel=COMPARISON
    )

    @property
    def compares(self) -> bool:
        """Whether several engines are asked."""
        return self.compare_policies or bool(self.policy) or self.backends is not None


@app.callback()
def group() -> None:
    """Measure accuracy on questions with known answers."""


@app.command()
@takes_options
def gsm8k(
    *,
    data: Annotated[str, typer.Option(metavar="FILE", help="GSM8K questions, as JSONL.", rich_help_panel=QUESTIONS)],
    what: Gsm8kOptions,
    output: OutputOptions,
    engine: EngineOptions,
) -> None:
    """Ask grade-school problems with worked examples, in process or of a server, and judge the answers.

    Prompts, stop strings and matches are those of lm-evaluation-harness. The exit status is 1 where policies are
    compared and their answers differ otherwise than by a near-tie.

    Examples:

    - `legato eval gsm8k --data test.jsonl --examples train.jsonl --num-questions 50`
    - `legato eval gsm8k --data test.jsonl --base-url http://127.0.0.1:8000`
    - `legato eval gsm8k --data test.jsonl --compare-policies --backends triton,flash_attn --output result.json`
    """
    _check(what, engine)
    console = Console(stderr=True)
    asked = _questions(Path(data), what)
    if what.base_url is not None:
        rows = [_of_server(what, engine, asked, console)]
    else:
        rows = _in_process(what, engine, asked, console)
    hand_over(rows, report_tables(rows), engine.device, output, elsewhere=what.base_url)
    if not output.json:
        show_differences(rows, Console())
    raise typer.Exit(0 if all(row.num_other == 0 for row in rows) else 1)


def _check(what: Gsm8kOptions, engine: EngineOptions) -> None:
    """Raise ConfigError for numbers that make no run, and for options that contradict each other."""
    least = {"--num-questions": what.num_questions, "--max-tokens": what.max_tokens, "--concurrency": what.concurrency}
    for name, value in [*least.items(), ("--num-shots", what.num_shots + 1)]:
        if value is not None and value < 1:
            raise ConfigError(f"{name} is out of range", {"limit": f"at least {int(name != '--num-shots')}"})
    if what.compares and what.base_url is not None:
        details = {"requested": "--base-url with --compare-policies", "options": "one of them"}
        raise ConfigError("policies are compared in this process", details)
    chosen = engine.graph_policy is not None or engine.enforce_eager or engine.compilation_config is not None
    if what.compares and chosen:
        details = {"requested": "one graph policy for the engine", "options": "--policy, once for each to compare"}
        raise ConfigError("several graph policies are compared", details)


def _questions(data: Path, what: Gsm8kOptions) -> "Questions":
    from legato.eval import gsm8k as task
    from legato.eval.questions import Questions

    pool = task.read_questions(data)
    examples = pool if what.examples is None else task.read_questions(Path(what.examples))
    questions = pool[: what.num_questions]
    return Questions(
        questions=questions,
        prompts=task.prompts(
            questions,
            examples,
            num_shots=what.num_shots,
            among=what.examples is None,
            seed=what.shots_seed,
            chat=what.chat,
        ),
        max_tokens=what.max_tokens,
        case=f"gsm8k-{what.num_shots}-shot" + ("-chat" if what.chat else ""),
    )


def _of_server(what: Gsm8kOptions, engine: EngineOptions, asked: "Questions", console: Console) -> "EvalRow":
    from legato.eval.openai_server import OpenAIServer, ask

    assert what.base_url is not None
    server = OpenAIServer(what.base_url, model=engine.served_model_name, api_key=what.api_key)
    with answering(console, len(asked.questions), server.model) as progress:
        return ask(server, asked, concurrency=what.concurrency, progress=progress)


def _in_process(what: Gsm8kOptions, engine: EngineOptions, asked: "Questions", console: Console) -> "list[EvalRow]":
    from legato.eval.policies import compare_policies, evaluate

    options = engine.sized_for(len(asked.questions))
    progress = partial(answering, console, len(asked.questions))
    if not what.compares:
        return [evaluate(options, asked, console, progress)]
    backends = what.backends.split(",") if what.backends else [options.attention_backend]
    return compare_policies(
        options,
        asked,
        console,
        progress,
        policies=tuple(map(GraphPolicy, what.policy)) or tuple(GraphPolicy),
        backends=[name.strip() for name in backends],
    )
