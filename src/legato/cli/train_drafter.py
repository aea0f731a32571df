"""``legato train-drafter``: a draft head for a model, from files of prompts. Owns how a run looks on a terminal."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from legato.config.options import EngineOptions
from legato.training.settings import DATA, TrainingOptions
from legato.training.time_budget import Stopwatch

if TYPE_CHECKING:  # it imports torch
    from legato.training.acceptance import Evaluation


def train_drafter(
    *,
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Prompts: JSON lines with question, prompt, turns or messages, or a ShareGPT-shaped JSON array; "
            "repeat for several files.",
            rich_help_panel=DATA,
        ),
    ],
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Folder for the head and for what the run keeps.", rich_help_panel=DATA)
    ],
    what: TrainingOptions,
    engine: EngineOptions,
) -> None:
    """Train an EAGLE-3 draft head for a model, on its own answers.

    The model answers the prompts, then a head learns to foresee the answers from the model's inner states. What is left
    in --out serves as a drafter, here and in other engines that read EAGLE-3 heads. Ctrl-C leaves the head of the last
    step, and --resume goes on from there; answers are never generated twice.

    Examples:

    - `legato train-drafter --model smollm2 --data gsm8k/train.jsonl --data sharegpt.json --out head`
    - `legato train-drafter --model smollm2 --data prompts.jsonl --invented-prompts 20000 --out head`
    - `legato train-drafter --model smollm2 --data prompts.jsonl --max-minutes 30 --out head`
    - `legato serve --model smollm2 --speculative-config '{"method": "eagle3", "model": "head"}'`
    """
    stopwatch = Stopwatch()  # before torch is imported
    from legato.training.run import train_drafter as train

    console = Console(stderr=True)
    with TerminalProgress(console) as progress:
        evaluation = train([Path(name) for name in data], Path(out), what, engine, progress, console, stopwatch)
    Console().print(f"{out}: {described(evaluation)}", markup=False, highlight=False, soft_wrap=True)


class TerminalProgress:
    """Bars for what can be counted, lines for what should stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.perf_counter()
        self._bars: Progress | None = None

    def __enter__(self) -> "TerminalProgress":
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._end()
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def answering(self, what: str, total: int) -> Callable[[int, int], None]:
        """Show a bar of answers; returns the function to tell (answers, tokens)."""
        report = self._begin(what, total)

        def tell(done: int, num_tokens: int) -> None:
            report(done, f"{num_tokens} tokens")

        return tell

    def step(self, done: int, total: int, loss: float) -> None:
        """Move the bar of steps."""
        if self._bars is None:
            self._begin("training", total)
        self._update(done, f"loss {loss:.3f}")

    def evaluated(self, step: int, evaluation: "Evaluation") -> None:
        """Print how good the head is after ``step`` steps."""
        console = self._console if self._bars is None else self._bars.console
        seconds = time.perf_counter() - self._started
        text = f"step {step}: {described(evaluation)} ({seconds:.0f} s)"
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _begin(self, what: str, total: int) -> Callable[[int, str], None]:
        self._end()
        self._bars = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
        )
        self._bars.add_task("", total=total)
        self._bars.start()
        return self._update

    def _update(self, done: int, text: str) -> None:
        if self._bars is not None:
            self._bars.update(self._bars.tasks[0].id, completed=done, description=text)

    def _end(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def described(evaluation: "Evaluation") -> str:
    """Return loss and acceptance on held-out prompts in a line."""
    rates = " ".join(f"{rate:.3f}" for rate in evaluation.acceptance_rates)
    lengths = " ".join(f"{length:.2f}" for length in evaluation.acceptance_lengths)
    return f"loss {evaluation.loss:.3f}, drafts right {rates}, tokens a round {lengths}"
