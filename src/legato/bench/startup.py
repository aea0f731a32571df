"""From the start of a process to the first token. Owns the child process that is timed, and how its time is split.

The child says when it had imported, built and answered; the clock is the system's monotonic one, which both processes
share. What building consisted of is read from the engine's trace.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from legato.bench.subject import Subject
from legato.config.environment import with_fresh_caches
from legato.config.options import EngineOptions
from legato.errors import EngineDeadError

CHILD = "legato.bench.startup_child"
PHASES = (
    "import",
    "weights",
    "compile",
    "kernels",
    "memory",
    "warm-up",
    "capture",
    "canary",
    "rest of build",
    "first token",
)
"""A peer that tells less has fewer of them: ``build`` is then all between import and first token."""
_BUILD_SPANS = ("weights", "compile", "kernels", "memory")
_GRAPH_SPANS = ("warm-up", "capture", "canary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a child tells. Times are of the system's monotonic clock, in seconds."""

    subject: Subject
    imported: float
    built: float
    first_token: float
    max_num_seqs: int
    num_graphs: int | None = None
    graph_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupRow(Subject):
    """Process start to first token."""

    case: str
    seconds: float
    """Median over the starts; the lower one of two."""
    starts: tuple[float, ...]
    """Seconds of each."""
    phases: dict[str, float]
    """Phase -> seconds, of the median start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMemoryRow(Subject):
    """What all graphs of an engine take."""

    case: str
    gib: float
    num_graphs: int | None
    """None where the engine does not tell."""
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """What is started, and how often."""

    engine: str
    """``legato`` or ``vllm``."""
    options: EngineOptions
    case: str
    cold: bool
    iterations: int


def measure_startup(
    what: Startup, report: Callable[[int, str], None] = lambda *_: None
) -> tuple[StartupRow, GraphMemoryRow | None]:
    """Start an engine in fresh processes; return the median start, and the memory of its graphs where it tells.

    Raises EngineDeadError with the end of the child's output where it fails.
    """
    starts = []
    for done in range(what.iterations):
        report(done, f"start {done + 1}")
        starts.append(_start(what))
    total = [sum(phases.values()) for _, phases in starts]
    middle = total.index(sorted(total)[(len(total) - 1) // 2])
    told, phases = starts[middle]
    subject = asdict(told.subject)
    row = StartupRow(**subject, case=what.case, seconds=total[middle], starts=tuple(total), phases=phases)
    if told.graph_gib is None:
        return row, None
    return row, GraphMemoryRow(
        **subject,
        case="graph-memory",
        gib=told.graph_gib,
        num_graphs=told.num_graphs,
        max_num_seqs=told.max_num_seqs,
    )


def _start(what: Startup) -> tuple[Started, dict[str, float]]:
    """Start one child; return what it told, and its seconds by phase."""
    with tempfile.TemporaryDirectory(prefix="legato-startup-") as folder:
        answer, trace, log = (Path(folder, name) for name in ("answer.json", "trace.json", "log"))
        options = replace(what.options, trace=what.options.trace or str(trace))
        command = [sys.executable, "-m", CHILD, what.engine, json.dumps(asdict(options)), str(answer), str(log)]
        fresh = Path(folder, "caches") if what.cold else None
        started = time.monotonic()
        with log.open("wb") as output:
            ended = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, env=with_fresh_caches(fresh), check=False
            )
        if ended.returncode or not answer.exists():
            raise _failed(what, ended.returncode, log.read_text(errors="replace"))
        told = msgspec.json.decode(answer.read_bytes(), type=Started)
        spans = read_spans(Path(options.trace or trace)) if what.engine == "legato" else {}
        return told, split(started, told, spans)


def read_spans(trace: Path) -> dict[str, float]:
    """Return the seconds of each kind of span that building left in a trace."""
    seconds: dict[str, float] = {}
    for event in json.loads(trace.read_bytes()):
        if event["name"] in (*_BUILD_SPANS, *_GRAPH_SPANS):
            seconds[event["name"]] = seconds.get(event["name"], 0.0) + event["dur"] / 1e6
    return seconds


def split(started: float, told: Started, spans: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by phase, which add up to all from ``started`` to the first token."""
    build = told.built - told.imported
    parts = {name: spans[name] for name in PHASES if name in spans}
    rest = "rest of build" if parts else "build"
    return {
        "import": told.imported - started,
        **parts,
        rest: build - sum(parts.values()),
        "first token": told.first_token - told.built,
    }


def _failed(what: Startup, code: int, log: str) -> EngineDeadError:
    lines: Sequence[str] = [line for line in log.splitlines() if line.strip()]
    return EngineDeadError(
        f"{what.engine} did not start", {"found": f"exit status {code}", "output": "\n".join(lines[-12:]) or "none"}
    )
