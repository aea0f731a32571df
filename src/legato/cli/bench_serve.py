"""``legato bench serve``: load on a server, and what its clients see. Owns the order; measuring is bench's."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from legato.cli.bench_options import OutputOptions
from legato.cli.bench_result import hand_over
from legato.cli.bench_serve_options import AskedServer, LoadOptions, PromptOptions
from legato.cli.bench_serve_tables import acceptance_table, comparison_tables, failures_table, serving_table
from legato.cli.dataclass_options import flag
from legato.config.options import EngineOptions
from legato.errors import ConfigError

if TYPE_CHECKING:
    from legato.bench.serving.datasets import Dataset
    from legato.bench.serving.measure import Plan, ServingRow
    from legato.bench.serving.random_text import Vocabulary
    from legato.results.rows_file import Row

_DRAW_EVERY_S = 0.5


def serve(
    *,
    more_goodput: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME:MS]…", help="More of --goodput's values.", show_default=False)
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A.json B.json", help="Measure nothing: set two files side by side.", rich_help_panel="Result"
        ),
    ] = None,
    asked: AskedServer,
    prompts: PromptOptions,
    load: LoadOptions,
    output: OutputOptions,
    engine: EngineOptions,
) -> None:
    """Measure a server with OpenAI's interface under load: any at `--base-url`, or one of our own, started for it.

    `--seed` is that of prompts and arrivals too. Ctrl-C ends the measurement and shows what there is.

    Examples:

    - `legato bench serve --num-prompts 64 --max-concurrency 16 --input-len 256 --output-len 64 --ignore-eos`
    - `legato bench serve --base-url http://localhost:8000 --request-rate 1,2,4 --goodput ttft:200 tpot:20 --plot a.png`
    - `legato bench serve --dataset sharegpt --dataset-path sharegpt.json --endpoint chat --repeat 3 --save a.json`
    - `legato bench serve --compare a.json b.json`
    """
    if compare is not None:
        _show_comparison(*compare)
        return
    from legato.bench.serving.measures import parse_goodput

    targets_ms = parse_goodput([*load.goodput, *(more_goodput or ())])
    if more_goodput and not load.goodput:
        raise ConfigError("there is an argument too much", {"found": " ".join(more_goodput), "options": "--goodput"})
    if load.plot is not None:
        from legato.bench.modes_plot import require_matplotlib

        require_matplotlib()
    console = Console(stderr=True)
    dataset = _dataset(asked, prompts, engine)
    load.loads(prompts.name)  # wrong numbers are known before a server is started
    with _server(asked, load, engine, console) as base_url:
        plan = _plan(base_url, asked, prompts, load, engine, targets_ms)
        rows = _measured(plan, dataset, console)
        if load.profile is not None:
            _record(plan, dataset, console)
    if not rows:
        raise typer.Abort  # by the user, before anything was measured
    _show(rows, load, output, engine, elsewhere=asked.base_url)


def _measured(plan: "Plan", dataset: "Dataset", console: Console) -> "list[ServingRow]":
    from legato.bench.serving.measure import measure_server

    rows = []
    with suppress(KeyboardInterrupt):  # between two runs; a run takes care of it itself
        for row in measure_server(plan, dataset, lambda name: _progress(console, name)):
            rows.append(row)  # noqa: PERF402 - what came before an interruption stays
    return rows


def _record(plan: "Plan", dataset: "Dataset", console: Console) -> None:
    from legato.bench.serving.profile import record_profile

    for load in plan.loads:
        console.print(f"wrote {record_profile(plan, load, dataset)}", markup=False, highlight=False)


def _show(
    rows: "list[ServingRow]", load: LoadOptions, output: OutputOptions, engine: EngineOptions, *, elsewhere: str | None
) -> None:
    import msgspec

    values: list[Row] = [msgspec.to_builtins(row) for row in rows]
    shown = (serving_table(values), acceptance_table(values), failures_table(values))
    hand_over(rows, shown, engine.device, output, elsewhere="a server" if elsewhere else None)
    if load.plot is not None:
        from legato.bench.serving.load_plot import draw_loads

        draw_loads(values, Path(load.plot))
        Console(stderr=True).print(f"drew {load.plot}", markup=False, highlight=False)


def _show_comparison(first: str, second: str) -> None:
    import msgspec

    from legato.bench.serving.summary import compare
    from legato.results.rows_file import read_rows_file

    try:
        rows = [read_rows_file(Path(name)).rows for name in (first, second)]
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            "a file of rows cannot be read", {"requested": f"{first} {second}", "found": error}
        ) from error
    names = [
        f"{Path(name).stem} ({found[0]['engine']})" if found else name
        for name, found in zip((first, second), rows, strict=True)
    ]
    Console().print(*comparison_tables(compare(*rows), *names))


def _plan(
    base_url: str,
    asked: AskedServer,
    prompts: PromptOptions,
    load: LoadOptions,
    engine: EngineOptions,
    targets_ms: dict[str, float],
) -> "Plan":
    from legato.bench.serving.client import Target
    from legato.bench.serving.measure import Plan, first_model

    target = Target(
        base_url=base_url,
        model=engine.served_model_name or first_model(base_url, asked.api_key),
        endpoint=asked.endpoint,
        api_key=asked.api_key,
        ignore_eos=asked.ignore_eos,
        temperature=None if asked.temperature < 0 else asked.temperature,
        stall_timeout_s=asked.stall_timeout,
    )
    return Plan(
        label=load.label or ("legato" if asked.base_url is None else "server"),
        target=target,
        dataset=prompts.dataset,
        loads=load.loads(prompts.name),
        repeat=load.repeat,
        warmup=load.warmup,
        seed=engine.seed,
        targets_ms=targets_ms,
    )


def _dataset(asked: AskedServer, prompts: PromptOptions, engine: EngineOptions) -> "Dataset":
    from legato.bench.serving.datasets import Dataset

    return Dataset(prompts.spec(asked.endpoint), lambda: _vocabulary(asked.tokenizer or engine.model))


def _vocabulary(model: str) -> "Vocabulary":
    """Return a model's tokenizer, or bare ids where it has none."""
    from dataclasses import replace

    from legato.bench.serving.random_text import BareIds
    from legato.loading.load_tokenizer import load_tokenizer
    from legato.loading.model_config import read_model_config
    from legato.loading.source import WeightFormat, resolve_model

    source = resolve_model(model, "dummy")  # no weights are needed
    tokenizer = load_tokenizer(replace(source, format=WeightFormat.SAFETENSORS))
    return tokenizer or BareIds(read_model_config(source).vocab_size)


@contextmanager
def _server(asked: AskedServer, load: LoadOptions, engine: EngineOptions, console: Console) -> Iterator[str]:
    """Yield the address of the server asked for, or of one that is started."""
    if asked.base_url is not None:
        if load.profile is not None:
            details = {"requested": f"--profile {load.profile}", "options": "POST /start_profile and /stop_profile"}
            raise ConfigError("a server that runs already writes profiles into its own --profile-dir", details)
        yield asked.base_url
        return
    from legato.bench.serving.own_server import running_server

    if asked.api_key is not None:
        raise ConfigError("a server of our own has no key", {"options": "--base-url with --api-key"})
    command = [sys.executable, "-m", "legato.cli.main", "serve", "--port", "0", "--no-access-log", *as_typed(engine)]
    if load.profile is not None:
        command += ["--profile-dir", load.profile]
    with running_server(command, lambda line: console.print(line, markup=False, highlight=False)) as url:
        yield url


def as_typed(engine: EngineOptions) -> list[str]:
    """Return the arguments that give these options."""
    arguments: list[str] = []
    for field in fields(engine):
        value = getattr(engine, field.name)
        if value == field.default or field.default is MISSING:
            continue
        name = flag(field.name)
        if isinstance(value, bool):
            arguments.append(name if value else f"--no-{name.removeprefix('--')}")
        else:
            arguments += [name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return arguments


def _progress(console: Console, name: str) -> Callable[[int, int], None]:
    """Return what tells of a run: a line that costs the event loop a few microseconds, twice a second."""
    drawn = time.monotonic()

    def tell(ended: int, failed: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn > _DRAW_EVERY_S and console.is_terminal:
            drawn = now
            sys.stderr.write(f"\r{name}: {ended} ended, {failed} failed \r")
            sys.stderr.flush()

    return tell
