"""What every device promises of capture and replay."""

from collections.abc import Callable

import pytest
import torch

from legato.device.protocol import Device, DeviceGraph
from legato.errors import GraphCaptureError
from legato.graphs.segments import SegmentedCapture


def capture(device: Device, work: Callable[[], object]) -> DeviceGraph:
    running = device.begin_capture()
    try:
        work()
    except BaseException:
        running.abandon()
        raise
    return running.end()


def on(device: Device, *values: float) -> torch.Tensor:
    return torch.tensor(values, device=device.torch_device)


@pytest.fixture(autouse=True)
def inference_mode():
    with torch.inference_mode():
        yield


def test_a_replay_repeats_the_work_on_new_data(device: Device) -> None:
    given, out = on(device, 1.0, 2.0), on(device, 0.0, 0.0)
    graph = capture(device, lambda: out.copy_(given.mul(3).add_(1)))
    for value in (5.0, 7.0):
        given.fill_(value)
        graph.replay()
        device.synchronize()
        assert out.tolist() == [3 * value + 1] * 2


def test_the_work_has_been_done_once_when_a_capture_ends(device: Device) -> None:
    out = on(device, 0.0)
    capture(device, lambda: out.add_(1))
    device.synchronize()
    assert out.tolist() == [1.0]


def test_host_values_are_frozen(device: Device) -> None:
    host = {"factor": 2.0}
    given, out = on(device, 1.0), on(device, 0.0)
    graph = capture(device, lambda: out.copy_(given * host["factor"]))
    host["factor"] = 9.0
    graph.replay()
    device.synchronize()
    assert out.tolist() == [2.0]


@pytest.mark.parametrize(
    "read",
    [lambda tensor: tensor[0].item(), lambda tensor: tensor.tolist(), lambda tensor: tensor[tensor > 0]],
    ids=["item", "tolist", "mask"],
)
def test_a_host_read_is_refused_and_the_device_stays_usable(
    device: Device, read: Callable[[torch.Tensor], object]
) -> None:
    given, out = on(device, 1.0), on(device, 0.0)
    # CUDA raises its own error at the read, the recording device ours; a capture catches both.
    with pytest.raises((GraphCaptureError, RuntimeError)):
        capture(device, lambda: read(given))
    graph = capture(device, lambda: out.copy_(given + 1))
    given.fill_(4.0)
    graph.replay()
    device.synchronize()
    assert out.tolist() == [5.0]


def test_segments_hand_values_on_around_an_eager_call(device: Device) -> None:
    given, out = on(device, 1.0), on(device, 0.0)
    segments = SegmentedCapture(device)

    def work() -> None:
        made = given + 1
        between = torch.empty_like(made)
        segments.run_eagerly(lambda: between.copy_(made * 2))
        out.copy_(between + made)

    parts = segments.capture(work, whole=False)
    for value in (3.0, 10.0):
        given.fill_(value)
        for part in parts:
            part.replay()
        device.synchronize()
        assert out.tolist() == [3 * (value + 1)]


def test_two_graphs_may_be_replayed_in_any_order(device: Device) -> None:
    given, first, second = on(device, 1.0), on(device, 0.0), on(device, 0.0)
    graphs = [
        capture(device, lambda: first.copy_(given.exp().log() + 1)),
        capture(device, lambda: second.copy_(given.exp().log() + 2)),
    ]
    given.fill_(2.0)
    for graph in reversed(graphs):
        graph.replay()
    device.synchronize()
    assert first.tolist() == pytest.approx([3.0])
    assert second.tolist() == pytest.approx([4.0])


def test_a_graph_counts_its_nodes(device: Device) -> None:
    out = on(device, 0.0)
    few = capture(device, lambda: out.add_(1))
    many = capture(device, lambda: [out.add_(1) for _ in range(10)])
    assert 0 < few.num_nodes < many.num_nodes


def test_memory_and_facts_are_told(device: Device) -> None:
    assert 0 < device.memory_free_bytes() <= device.memory_total_bytes()
    assert device.facts.kind == device.torch_device.type
    assert str(device.facts)
