from collections.abc import Iterator

import pytest
import torch

from legato.device.recording import RecordingDevice
from legato.errors import GraphCaptureError
from legato.graphs.segments import EagerCall, SegmentedCapture


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    """As the runner does: eager calls write to what a segment made."""
    with torch.inference_mode():
        yield


def test_an_eager_call_ends_a_segment_and_begins_the_next() -> None:
    given, out = torch.ones(2), torch.zeros(2)
    host = {"factor": 1.0}
    capture = SegmentedCapture(RecordingDevice())

    def work() -> None:
        made = given + 1
        between = torch.empty(2)
        capture.run_eagerly(lambda: between.copy_(made * host["factor"]))
        out.copy_(between * 10)

    parts = capture.capture(work, whole=False)
    assert [type(part) is EagerCall for part in parts] == [False, True, False]
    given.fill_(4)
    host["factor"] = 3.0
    for part in parts:
        part.replay()
    assert out.tolist() == [150.0, 150.0], "the segments see new data, the eager call new host values too"


def test_a_host_read_is_allowed_between_segments_only() -> None:
    given, out = torch.ones(1), torch.zeros(1)
    capture = SegmentedCapture(RecordingDevice())
    seen: list[float] = []

    def work() -> None:
        made = given * 2
        capture.run_eagerly(lambda: seen.append(made.item()))
        out.copy_(made)

    parts = capture.capture(work, whole=False)
    given.fill_(5)
    for part in parts:
        part.replay()
    assert seen == [2.0, 10.0]


def test_values_pass_over_several_segments() -> None:
    given, out = torch.ones(1), torch.zeros(1)
    capture = SegmentedCapture(RecordingDevice())

    def work() -> None:
        residual = given * 3
        hidden = residual
        for _ in range(4):
            result = torch.empty(1)
            capture.run_eagerly(lambda hidden=hidden, result=result: result.copy_(hidden + 1))
            hidden = result + residual
        out.copy_(hidden)

    parts = capture.capture(work, whole=False)
    assert len(parts) == 9
    for value in (1.0, 2.0, 7.0):
        given.fill_(value)
        for part in parts:
            part.replay()
        expected = value * 3
        for _ in range(4):
            expected = expected + 1 + value * 3
        assert out.item() == expected


@pytest.mark.parametrize("where", ["first segment", "eager call", "last segment"])
def test_an_error_anywhere_leaves_the_device_usable(where: str) -> None:
    given, out = torch.ones(1), torch.zeros(1)
    capture = SegmentedCapture(RecordingDevice())

    def fail(at: str) -> None:
        if at == where:
            raise RuntimeError(at)

    def work() -> None:
        made = given + 1
        fail("first segment")
        capture.run_eagerly(lambda: fail("eager call"))
        fail("last segment")
        out.copy_(made)

    with pytest.raises(RuntimeError, match=where):
        capture.capture(work, whole=False)
    assert given.item() == 1.0
    (part,) = SegmentedCapture(RecordingDevice()).capture(lambda: out.copy_(given), whole=True)
    part.replay()


def test_a_whole_graph_may_leave_no_tensor_behind() -> None:
    given, kept = torch.ones(1), []
    with pytest.raises(GraphCaptureError, match="still referenced"):
        SegmentedCapture(RecordingDevice()).capture(lambda: kept.append(given + 1), whole=True)
