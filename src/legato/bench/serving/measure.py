"""A measurement of a server: each load of a sweep, so many times. Owns the order of things and the rows."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from legato.bench.serving.arrivals import Arrivals, rate_text
from legato.bench.serving.client import Target
from legato.bench.serving.connection import server_root
from legato.bench.serving.counters import ServerFigures, read_counters, server_figures
from legato.bench.serving.datasets import Dataset
from legato.bench.serving.load import LoadResult, Progress, run_load
from legato.bench.serving.measures import Figures, figures
from legato.bench.serving.prompt import Prompt
from legato.errors import ConfigError, RequestError
from legato.results.rows_file import model_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One point of a sweep."""

    case: str
    num_prompts: int
    arrivals: Arrivals
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    label: str
    """Whom the rows are about, for a reader."""
    target: Target
    dataset: str
    loads: tuple[Load, ...]
    repeat: int = 1
    warmup: int = 1
    """Requests before each run that do not count."""
    seed: int = 0
    targets_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow(Figures):
    """One run of one load."""

    engine: str
    """The plan's label."""
    model: str
    case: str
    repetition: int
    dataset: str
    endpoint: str
    request_rate: float | None
    """Per second; None: unlimited, or a ramp."""
    burstiness: float | None
    """None: evenly spaced."""
    ramp_up: str | None
    max_concurrency: int | None
    seed: int
    server: ServerFigures
    """What it counted itself."""


def measure_server(
    plan: Plan, dataset: Dataset, progress: Callable[[str], Progress] = lambda _: lambda *_: None
) -> Iterator[ServingRow]:
    """Yield a row per run, each load ``repeat`` times; ends early when the user breaks a run off.

    Prompts are drawn anew for each run, so that no run finds those of another in a cache, and are the same for the
    same plan. ``progress`` makes what is told of a run from its name.
    """
    for (position, load), repetition in itertools.product(enumerate(plan.loads), range(plan.repeat)):
        drawn = dataset.prompts(f"{plan.seed}-{position}-{repetition}")
        prompts = list(itertools.islice(drawn, plan.warmup + load.num_prompts))
        row, unfinished = _run(plan, load, repetition, prompts, progress)
        yield row
        if unfinished:
            return


def _run(
    plan: Plan, load: Load, repetition: int, prompts: Sequence[Prompt], progress: Callable[[str], Progress]
) -> tuple[ServingRow, int]:
    warm, counted = prompts[: plan.warmup], prompts[plan.warmup :]
    if warm:
        run_load(plan.target, warm, [0.0] * len(warm), max_concurrency=load.max_concurrency)
    send_times = load.arrivals.send_times(len(counted), random.Random(f"{plan.seed}-{repetition}"))
    target = plan.target
    before = read_counters(target.base_url, target.api_key)
    told = progress(f"{load.case} ({repetition + 1} of {plan.repeat})" if plan.repeat > 1 else load.case)
    result = run_load(target, counted, send_times, max_concurrency=load.max_concurrency, progress=told)
    after = read_counters(target.base_url, target.api_key)
    return _row(
        plan, load, repetition, result, server_figures(before, after, seconds=result.seconds)
    ), result.unfinished


def _row(plan: Plan, load: Load, repetition: int, result: LoadResult, server: ServerFigures) -> ServingRow:
    arrivals = load.arrivals
    ramp = arrivals.ramp_up
    ran = figures(result, plan.targets_ms)
    return ServingRow(
        **{name: getattr(ran, name) for name in Figures.__dataclass_fields__},
        engine=plan.label,
        model=model_name(plan.target.model),
        case=load.case,
        repetition=repetition,
        dataset=plan.dataset,
        endpoint=plan.target.endpoint,
        request_rate=None if ramp or math.isinf(arrivals.rate) else arrivals.rate,
        burstiness=None if math.isinf(arrivals.burstiness) else arrivals.burstiness,
        ramp_up=None if ramp is None else f"{ramp.kind}:{ramp.first_rate:g}:{ramp.last_rate:g}",
        max_concurrency=load.max_concurrency,
        seed=plan.seed,
        server=server,
    )


def sweep(
    arrivals: Sequence[Arrivals], concurrencies: Sequence[int | None], num_prompts: Sequence[int], name: str
) -> tuple[Load, ...]:
    """Return a load for every arrival process with every limit of requests at once, in this order.

    ``num_prompts``: one number for all loads, or one for each. Raises ConfigError for another number of them.
    """
    points = list(itertools.product(arrivals, concurrencies))
    numbers = list(num_prompts) * len(points) if len(num_prompts) == 1 else list(num_prompts)
    if len(numbers) != len(points):
        raise ConfigError(
            "--num-prompts does not match the loads",
            {"requested": f"{len(numbers)} numbers of prompts for {len(points)} loads", "options": "one, or one each"},
        )
    return tuple(
        Load(case=_case(name, arrival, at_once), num_prompts=number, arrivals=arrival, max_concurrency=at_once)
        for (arrival, at_once), number in zip(points, numbers, strict=True)
    )


def _case(name: str, arrivals: Arrivals, max_concurrency: int | None) -> str:
    ramp = arrivals.ramp_up
    rate = rate_text(arrivals.rate) if ramp is None else f"{ramp.kind}:{ramp.first_rate:g}:{ramp.last_rate:g}"
    at_once = "" if max_concurrency is None else f" c={max_concurrency}"
    return f"{name} rate={rate}{at_once}"


def first_model(base_url: str, api_key: str | None) -> str:
    """Return the model that a server lists first. Raises ConfigError where none answers, RequestError for a refusal."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    root = str(server_root(base_url)).rstrip("/")
    try:
        response = httpx.get(f"{root}/v1/models", headers=headers, timeout=30.0)
    except httpx.HTTPError as error:
        found = f"{type(error).__name__}: {error}"
        details = {"requested": base_url, "found": found, "options": "--base-url http://HOST:PORT"}
        raise ConfigError("the server does not answer", details) from error
    try:
        model: str = response.raise_for_status().json()["data"][0]["id"]
    except (httpx.HTTPStatusError, ValueError, LookupError, TypeError) as error:
        details = {
            "requested": f"{base_url}, its list of models",
            "found": f"{response.status_code} {response.text[:200]}",
        }
        raise RequestError("the server names no model", {**details, "options": "--served-model-name"}) from error
    return model
