"""``legato bench speculation``: when drafts pay. Owns the command and its options; measuring is bench's."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from legato.cli import bench_tables
from legato.cli.bench_options import RESULT, WORKLOAD, OutputOptions
from legato.cli.bench_progress import measuring
from legato.cli.bench_result import hand_over
from legato.config.options import EngineOptions, option
from legato.engine.speculative_options import speculative_settings
from legato.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """What ``legato bench speculation`` measures."""

    acceptance: str = option(
        "1.0,1.5,2.0,2.8,4.0",
        "Tokens that a round with the most drafts yields in the mean: how predictable the text is.",
        metavar="A,A,…",
        panel=WORKLOAD,
    )
    batch_size: tuple[int, ...] = option(
        (1, 8), "Requests at once; several sizes are measured one by one.", metavar="N,N,…", panel=WORKLOAD
    )
    drafts: tuple[int, ...] = option(
        (1, 3, 5), "Fixed numbers of drafts, beside none and the engine's choice.", metavar="K,K,…", panel=WORKLOAD
    )
    input_len: int = option(128, "Tokens of each prompt.", panel=WORKLOAD)
    output_len: int = option(128, "Tokens generated for each prompt, or more by --turn-tokens.", panel=WORKLOAD)
    turn_tokens: int = option(
        256, "Tokens of a turn at least, all requests together: over few, chance does not even out.", panel=WORKLOAD
    )
    iterations: int = option(3, "Turns that count.", panel=WORKLOAD)
    warmup: int = option(1, "Turns before them that do not, in which the engine learns what to choose.", panel=WORKLOAD)
    plot: str | None = option(
        None, "Draw speed over plain decoding against acceptance.", metavar="FILE.png", panel=RESULT
    )

    def lengths(self) -> tuple[float, ...]:
        """Return the acceptance lengths. Raises ConfigError for what is no number, or that no round can yield."""
        most = max(self.drafts)
        try:
            lengths = tuple(float(part) for part in self.acceptance.split(","))
        except ValueError as error:
            details = {"found": self.acceptance, "options": "numbers between commas, such as 1.5,2.8"}
            raise ConfigError("--acceptance is a list of numbers", details) from error
        if not all(1 <= length <= 1 + most for length in lengths):
            limit = f"1 to {1 + most}: a round has {most} drafts at most, and a token of its own"
            raise ConfigError("--acceptance is out of range", {"requested": self.acceptance, "limit": limit})
        return lengths


def speculation(*, workload: SpeculationOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure speculative decoding against plain, over acceptance, batch and number of drafts, by synthetic acceptance.

    `--speculative-config` names the drafter; without one it is `ngram`. One engine serves the whole sweep.

    Example:

    - `legato bench speculation --acceptance 1.5,2.8 --batch-size 1,8 --drafts 1,3 --plot speculation.png`
    """
    from legato.bench.legato_contestant import LegatoContestant
    from legato.bench.modes_plot import require_matplotlib
    from legato.bench.speculation import Sweep, measure_speculation
    from legato.bench.speculation_plot import draw_speculation

    if workload.plot is not None:
        require_matplotlib()
    console = Console(stderr=True)
    engine = replace(engine.sized_for(max(workload.batch_size)), speculative_config=_config(workload, engine))
    contestant = LegatoContestant("legato", engine, console)
    config = contestant.core.config
    assert config.speculative is not None, "it was just asked for"
    _check_numbers(workload.drafts, config.speculative.numbers_of_drafts)
    sweep = Sweep(
        lengths=workload.lengths(),
        batch_sizes=workload.batch_size,
        numbers=workload.drafts,
        input_len=workload.input_len,
        output_len=workload.output_len,
        turn_tokens=workload.turn_tokens,
        turns=workload.iterations,
        warmup=workload.warmup,
        vocab_size=config.model.vocab_size,
    )
    with measuring(console, "measuring", sweep.num_turns) as report:
        rows = measure_speculation(contestant, config.speculative, sweep, report)
    hand_over(rows, (bench_tables.speculation_table(rows),), config.device, output)
    if workload.plot is not None:
        draw_speculation(rows, Path(workload.plot))
        console.print(f"drew {workload.plot}", markup=False, highlight=False)


def _config(workload: SpeculationOptions, engine: EngineOptions) -> str:
    """Return the drafter that was named, choosing its number of drafts, with acceptance that can be set."""
    settings = speculative_settings(engine.speculative_config or '{"method": "ngram"}')
    return json.dumps(
        settings
        | {
            "num_speculative_tokens": "auto",
            "max_num_speculative_tokens": max(workload.drafts),
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": workload.lengths()[0],
        }
    )


def _check_numbers(asked: tuple[int, ...], there: tuple[int, ...]) -> None:
    missing = [number for number in asked if number not in there]
    if missing:
        raise ConfigError(
            "there are no graphs for these numbers of drafts",
            {"requested": f"--drafts {missing}", "options": " ".join(map(str, there))},
        )
