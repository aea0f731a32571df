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


def layered(device: Device, given: torch.Tensor, out: torch.Tensor, num_layers: int) -> Callable[[], None]:
    """Capture layers, each with an eager call on borrowed tensors in its middle, and return the replay."""
    segments = SegmentedCapture(device)

    def work() -> None:
        offset = given * 10
        hidden, lent_offset = given + 0, segments.borrow(offset)
        for _ in range(num_layers):
            query, result = hidden * 2, torch.empty_like(hidden)
            lent_query, lent_result = segments.borrow(query), segments.borrow(result)
            segments.run_eagerly(lambda a=lent_query, b=lent_offset, c=lent_result: torch.add(a, b, out=c))
            hidden = result - hidden
        out.copy_(hidden)

    parts = segments.capture(work, whole=False)

    def replay() -> None:
        for part in parts:
            part.replay()

    return replay


@pytest.mark.parametrize("size", [3, 1 << 20])
def test_eager_calls_on_borrowed_tensors_see_each_replay(device: Device, size: int) -> None:
    given, out = torch.ones(size, device=device.torch_device), torch.zeros(size, device=device.torch_device)
    replay = layered(device, given, out, num_layers=4)
    other = torch.zeros_like(out)
    layered(device, given, other, num_layers=3)  # captured later, and free to use the same memory
    for value in (3.0, 8.0):
        given.fill_(value)
        replay()
        device.synchronize()
        assert out[:2].tolist() == out[-2:].tolist() == [value + 4 * 10 * value] * 2


@pytest.mark.gpu
def test_borrowed_memory_is_used_again_in_the_layers_and_keys_that_follow(device: Device) -> None:
    if not device.has_own_memory:
        pytest.skip("a device without a pool")
    given = torch.ones(1 << 22, device=device.torch_device)  # 16 MiB
    out, before = torch.zeros_like(given), device.graph_pool_bytes()
    replays = [layered(device, given, out, num_layers=20) for _ in range(5)]
    assert device.graph_pool_bytes() - before <= 8 * given.nbytes, "of 200 tensors that the calls were given"
    given.fill_(2.0)
    for replay in reversed(replays):
        out.zero_()
        replay()
        device.synchronize()
        assert out[0].item() == out[-1].item() == 2 + 20 * 10 * 2


def test_a_borrowed_tensor_is_the_same_memory(device: Device) -> None:
    whole = torch.arange(24, device=device.torch_device).view(4, 6)
    lent = device.borrow(whole[1:, 2:4])
    lent.fill_(-1)
    device.synchronize()
    assert (whole == -1).sum().item() == 6
    assert (lent.data_ptr(), lent.stride()) == (whole[1:, 2:4].data_ptr(), (6, 1))


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
