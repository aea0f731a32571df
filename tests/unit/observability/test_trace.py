"""A trace is whole JSON at any time, its spans nest, and every step says what it ran as and why."""

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_engine import build, options, request, run, write_config

from legato.engine.bootstrap import build_engine
from legato.errors import ConfigError
from legato.observability.reasons import Reason
from legato.observability.trace import NO_TRACE, StepTrace, TraceFile

PARTS = {"schedule", "plan", "prepare", "sample", "wait", "commit"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"))


def events_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())


def spans_of(path: Path) -> list[dict[str, Any]]:
    return [event for event in events_of(path) if event["ph"] == "X"]


def assert_nested(spans: list[dict[str, Any]]) -> None:
    """Spans come in order of their beginning, and each lies in the innermost one that is open, or after it."""
    begins = [span["ts"] for span in spans]
    assert begins == sorted(begins)
    open_until: list[float] = []
    for span in spans:
        assert span["dur"] >= 0
        end = span["ts"] + span["dur"]
        while open_until and open_until[-1] <= span["ts"] + 1e-3:
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 1e-3, f"{span} ends after the span that holds it"
        open_until.append(end)


@pytest.mark.parametrize("overlap", [False, True])
def test_every_step_is_traced_with_mode_and_reason(folder: Path, tmp_path: Path, overlap: bool) -> None:
    path = tmp_path / "trace.json"
    core = build(folder, trace=str(path), graph_policy="full_decode_only", graph_sizes=(2,), overlap=overlap)
    run(core, [request("a", [1, 2, 3], max_tokens=5), request("b", [4], max_tokens=3)])
    spans = spans_of(path)
    assert_nested(spans)
    steps = [span["args"] for span in spans if span["name"] == "step"]
    recorded = [(record.step, record.mode, record.reason, record.key) for record in core.step_log.recent]
    assert [(step["step"], step["mode"], step["reason"], step["key"]) for step in steps] == recorded
    assert steps[0]["reason"] == Reason.DISABLED_BY_USER
    assert steps[1]["mode"] == "full"
    assert steps[1]["reason"] is None


def test_a_step_has_its_parts_and_the_time_between_steps_is_idle(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    core = build(folder, trace=str(path), graph_policy="full_decode_only", graph_sizes=(2,))
    run(core, [request("a", [1, 2, 3], max_tokens=4)])
    spans = spans_of(path)
    steps = [span for span in spans if span["name"] == "step"]
    idle = [span for span in spans if span["name"] == "idle"]
    for number, step in enumerate(steps):
        end = step["ts"] + step["dur"]
        inside = {span["name"] for span in spans if step["ts"] <= span["ts"] and span["ts"] + span["dur"] <= end + 1e-3}
        assert inside - {"step"} == PARTS | {"forward" if number == 0 else "replay"}
    for before, after, gap in zip(steps, steps[1:], idle, strict=False):
        assert gap["ts"] == before["ts"] + before["dur"] or abs(gap["ts"] - before["ts"] - before["dur"]) < 1e-2
        assert abs(gap["ts"] + gap["dur"] - after["ts"]) < 1e-2


def test_the_file_is_whole_after_every_step(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.json"
    core = build(folder, trace=str(path), graph_policy="none")
    assert {event["ph"] for event in events_of(path)} == {"M"}
    core.add(request("a", [1, 2, 3], max_tokens=3))
    counts = []
    while core.has_work:
        core.step()
        counts.append(sum(span["name"] == "step" for span in spans_of(path)))
    assert counts == [1, 2, 3]


def test_engines_of_one_process_share_a_file_on_tracks_of_their_own(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    cores = [build(folder, trace=str(path), graph_policy=policy) for policy in ("none", "piecewise")]
    for core in (*cores, *cores):
        run(core, [request("a", [1, 2], max_tokens=2)])
    names = {event["tid"]: event["args"]["name"] for event in events_of(path) if event["name"] == "thread_name"}
    assert ["none" in names[1], "piecewise" in names[2]] == [True, True]
    modes = {(span["tid"], span["args"]["mode"]) for span in spans_of(path) if span["name"] == "step"}
    assert modes == {(1, "eager"), (2, "piecewise")}
    for track in names:
        assert_nested([span for span in spans_of(path) if span["tid"] == track])


def test_a_step_that_fails_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace = StepTrace("failing", TraceFile.at(path))
    with pytest.raises(ZeroDivisionError), trace.step(), trace.span("prepare"):
        raise ZeroDivisionError
    assert [span["name"] for span in spans_of(path)] == ["collect", "prepare"]


class Recorded:
    """Implements Ranges by writing down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def push(self, name: str) -> None:
        self.told.append(name)

    def pop(self) -> None:
        self.told.append("end")


def test_a_profiler_gets_the_same_spans_as_ranges() -> None:
    ranges = Recorded()
    trace = StepTrace("any", None, ranges)
    with trace.step(), trace.span("replay"):
        pass
    assert ranges.told == ["step", "replay", "end", "end"]


def test_without_the_option_nothing_is_traced_and_nvtx_is_nothing_on_a_cpu(folder: Path) -> None:
    assert build(folder, graph_policy="none", nvtx=True)._trace is NO_TRACE


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Have the system refuse to write beyond ``size`` bytes of a file; what lies before it is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_the_trace_with_one_warning_and_not_the_engine(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    core = build(folder, trace=str(path), graph_policy="none")
    written = path.stat().st_size
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, TraceFile.at(path)._file.fileno())
    os.close(full)
    updates = run(core, [request("a", [1, 2, 3], max_tokens=5)])
    assert len(updates["a"].token_ids) == 5
    [warning] = caplog.messages
    assert warning == (
        f"tracing has stopped after {written} bytes, the engine goes on: {path}: No space left on device"
    )


def test_what_a_disk_took_of_a_step_before_it_was_full_is_taken_back(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    core = build(folder, trace=str(path), graph_policy="none")
    run(core, [request("a", [1, 2, 3], max_tokens=2)])
    before = path.read_bytes()
    with no_file_longer_than(len(before) + 100):
        run(core, [request("b", [1, 2, 3], max_tokens=2)])
    run(core, [request("c", [1, 2, 3], max_tokens=2)])
    assert path.read_bytes() == before
    assert [f"after {len(before)} bytes" in message for message in caplog.messages] == [True]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_built(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trace cannot be written"):
        build_engine(options(folder, trace=str(tmp_path)))
    with pytest.raises(ConfigError, match="No space left on device"):
        build_engine(options(folder, trace="/dev/full"))
