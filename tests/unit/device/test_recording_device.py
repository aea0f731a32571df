"""The recording device keeps the promises of a CUDA graph, and refuses what would stop a CUDA capture."""

import gc
from collections.abc import Callable

import pytest
import torch

from legato.device.recording import RecordingDevice
from legato.device.recording_capture import RecordedGraph
from legato.errors import GraphCaptureError


def capture(work: Callable[[], object], *, may_outlive: bool = False) -> RecordedGraph:
    running = RecordingDevice().begin_capture()
    try:
        work()
    except BaseException:
        running.abandon()
        raise
    return running.end(may_outlive=may_outlive)


def test_a_replay_repeats_the_work_on_new_data() -> None:
    given, out = torch.ones(3), torch.zeros(3)
    graph = capture(lambda: out.copy_(given * 2 + 1))
    given.copy_(torch.tensor([1.0, 2.0, 3.0]))
    graph.replay()
    assert out.tolist() == [3.0, 5.0, 7.0]


def test_the_capture_itself_computes() -> None:
    out = torch.zeros(2)
    capture(lambda: out.add_(1))
    assert out.tolist() == [1.0, 1.0]


def test_host_values_are_frozen() -> None:
    host = {"factor": 2}
    given, out = torch.ones(1), torch.zeros(1)
    graph = capture(lambda: out.copy_(given * host["factor"]))
    host["factor"] = 100
    graph.replay()
    assert out.item() == 2.0


def test_python_branches_are_frozen() -> None:
    host = {"negate": True}
    given, out = torch.ones(1), torch.zeros(1)
    graph = capture(lambda: out.copy_(-given if host["negate"] else given))
    host["negate"] = False
    graph.replay()
    assert out.item() == -1.0


def test_a_rebuilt_tensor_is_not_seen_by_the_graph() -> None:
    holder = {"given": torch.ones(1)}
    out = torch.zeros(1)
    graph = capture(lambda: out.copy_(holder["given"] + 1))
    holder["given"] = torch.full((1,), 50.0)
    graph.replay()
    assert out.item() == 2.0


VALUES = torch.tensor([3.0, 1.0, 2.0])
HOST_READS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor[0].item(),
    "tolist": lambda tensor: tensor.tolist(),
    "numpy": lambda tensor: tensor.numpy(),
    "bool": lambda tensor: bool(tensor[0] > 1),
    "int": lambda tensor: int(tensor[0]),
    "float": lambda tensor: float(tensor[0]),
    "index": lambda tensor: range(5)[tensor.to(torch.int64)[0]],
    "contains": lambda tensor: 1.0 in tensor,
    "cpu": lambda tensor: tensor.cpu(),
    "format": lambda tensor: f"{tensor[0]:.2f}",
    "equal": lambda tensor: torch.equal(tensor, tensor),
    "allclose": lambda tensor: torch.allclose(tensor, tensor + 1),
    "nonzero": lambda tensor: torch.nonzero(tensor),
    "where of one argument": lambda tensor: torch.where(tensor > 1),
    "mask as an index": lambda tensor: tensor[tensor > 1],
    "mask as an index written to": lambda tensor: tensor.index_put_((tensor > 1,), torch.zeros(())),
    "masked_select": lambda tensor: torch.masked_select(tensor, tensor > 1),
    "unique": lambda tensor: torch.unique(tensor),
    "repeat by a tensor": lambda tensor: torch.repeat_interleave(tensor, tensor.to(torch.int64)),
    "slice by a tensor": lambda tensor: tensor[: tensor.to(torch.int64)[1]],
}
HOST_COPIES: dict[str, Callable[[torch.Tensor], object]] = {
    "tensor of a list": lambda tensor: torch.tensor([1.0, 2.0]),
    "tensor of a number": lambda tensor: torch.tensor(1.0),
    "as_tensor": lambda tensor: torch.as_tensor([1, 2]),
    "new_tensor": lambda tensor: tensor.new_tensor([1.0]),
    "list as an index": lambda tensor: tensor[[0, 2]],
}


@pytest.mark.parametrize("name", HOST_READS)
def test_a_host_read_is_refused(name: str) -> None:
    given = VALUES.clone()
    with pytest.raises(GraphCaptureError, match="host read"):
        capture(lambda: HOST_READS[name](given))


@pytest.mark.parametrize("name", HOST_READS)
def test_a_host_read_of_an_intermediate_is_refused(name: str) -> None:
    given = VALUES.clone()
    with pytest.raises(GraphCaptureError, match="host read"):
        capture(lambda: HOST_READS[name](given * 1))


@pytest.mark.parametrize("name", HOST_COPIES)
def test_a_copy_of_host_data_is_refused(name: str) -> None:
    given = VALUES.clone()
    with pytest.raises(GraphCaptureError, match="host data"):
        capture(lambda: HOST_COPIES[name](given))


def test_what_is_refused_in_a_capture_is_allowed_outside() -> None:
    for read in (*HOST_READS.values(), *HOST_COPIES.values()):
        read(VALUES.clone())


def test_an_integer_tensor_may_index() -> None:
    table, index, out = torch.arange(10.0), torch.tensor([1, 2]), torch.zeros(2)
    graph = capture(lambda: out.copy_(table[index]))
    index.copy_(torch.tensor([7, 9]))
    graph.replay()
    assert out.tolist() == [7.0, 9.0]


def test_an_integer_tensor_may_index_what_is_written() -> None:
    table, index = torch.zeros(4), torch.tensor([1])
    graph = capture(lambda: table.index_put_((index,), torch.ones(())))
    index.fill_(3)
    graph.replay()
    assert table.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_a_view_of_persistent_memory_is_no_operation() -> None:
    given, out = torch.arange(6.0), torch.zeros(2, 2)
    graph = capture(lambda: out.copy_(given.view(2, 3)[:, 1:].t()))
    alone = capture(lambda: out.copy_(out))
    assert graph.num_nodes <= alone.num_nodes + 1
    given.mul_(10)
    graph.replay()
    assert out.tolist() == [[10.0, 40.0], [20.0, 50.0]]


def test_a_write_through_a_view_of_persistent_memory_is_repeated() -> None:
    given, out = torch.ones(2), torch.zeros(2, 3)
    graph = capture(lambda: out[:, 1].add_(given))
    given.fill_(10)
    graph.replay()
    assert out.tolist() == [[0.0, 11.0, 0.0], [0.0, 11.0, 0.0]]


def test_a_write_in_place_to_an_intermediate_is_repeated() -> None:
    given, out = torch.ones(2), torch.zeros(2)

    def work() -> None:
        made = given * 2
        made.add_(1)
        made[0:1].mul_(10)
        out.copy_(made)

    graph = capture(work)
    given.fill_(2)
    graph.replay()
    assert out.tolist() == [50.0, 5.0]


def test_an_intermediate_starts_anew_at_each_replay() -> None:
    given, out = torch.ones(1), torch.zeros(1)

    def work() -> None:
        total = torch.zeros(1)
        total += given
        out.copy_(total)

    graph = capture(work)
    for _ in range(3):
        graph.replay()
    assert out.item() == 1.0


def test_several_outputs_of_one_operation_are_told_apart() -> None:
    given, best, where, parts = torch.tensor([1.0, 5.0, 3.0]), torch.zeros(1), torch.zeros(1), torch.zeros(2)

    def work() -> None:
        values, indices = (given * 1).topk(1)
        best.copy_(values)
        where.copy_(indices)
        first, second = (given * 1)[:2].split(1)
        parts.copy_(torch.cat([second, first]))

    graph = capture(work)
    given.copy_(torch.tensor([9.0, 2.0, 4.0]))
    graph.replay()
    assert (best.item(), where.item(), parts.tolist()) == (9.0, 0.0, [2.0, 9.0])


def test_an_output_that_nobody_uses_is_left_aside() -> None:
    given, out = torch.tensor([1.0, 5.0]), torch.zeros(1)
    graph = capture(lambda: out.copy_((given * 1).max(dim=0).values))
    given.copy_(torch.tensor([8.0, 2.0]))
    graph.replay()
    assert out.item() == 8.0


def test_an_operation_may_write_to_a_buffer_given_as_out() -> None:
    given, out = torch.eye(2), torch.zeros(2, 2)
    graph = capture(lambda: torch.mm(given, given, out=out))
    given.mul_(3)
    graph.replay()
    assert out.tolist() == [[9.0, 0.0], [0.0, 9.0]]


def test_constants_that_have_no_literal_are_kept() -> None:
    given, out = torch.zeros(2), torch.zeros(2, dtype=torch.float64)
    graph = capture(lambda: out.copy_(given.masked_fill(given == 0, float("-inf")).to(torch.float64)))
    given.copy_(torch.tensor([0.0, 4.0]))
    graph.replay()
    assert out.tolist() == [float("-inf"), 4.0]


def test_a_tensor_that_outlives_the_capture_is_refused() -> None:
    given, kept = torch.ones(2, 3), []
    with pytest.raises(GraphCaptureError, match="still referenced") as caught:
        capture(lambda: kept.append(given + 1))
    assert "(2, 3)" in str(caught.value)


def test_a_view_that_outlives_the_capture_is_refused() -> None:
    given, kept = torch.ones(2, 3), []
    with pytest.raises(GraphCaptureError, match="still referenced"):
        capture(lambda: kept.append((given + 1)[0]))


def test_a_reference_cycle_is_no_holder() -> None:
    given = torch.ones(2)

    def work() -> None:
        cycle: list[object] = [given + 1]
        cycle.append(cycle)

    gc.disable()
    try:
        capture(work)
    finally:
        gc.enable()


def test_an_allowed_survivor_keeps_its_address_and_gets_each_replays_value() -> None:
    given, kept = torch.ones(2), []
    graph = capture(lambda: kept.append(given + 1), may_outlive=True)
    address = kept[0].data_ptr()
    given.fill_(5)
    graph.replay()
    assert kept[0].tolist() == [6.0, 6.0]
    assert kept[0].data_ptr() == address
    assert graph.num_bytes == 8


def test_a_graph_without_survivors_keeps_the_memory_of_small_intermediates_alone() -> None:
    small, large = torch.ones(1000), torch.ones(100_000)
    assert capture(lambda: small.copy_(small * 2)).num_bytes == small.nbytes
    assert capture(lambda: large.copy_(large * 2)).num_bytes == 0


def test_a_survivor_and_its_view_both_get_each_replays_value() -> None:
    given, kept = torch.ones(2), []

    def work() -> None:
        made = given + 1
        kept.extend([made, made[1:]])

    graph = capture(work, may_outlive=True)
    given.fill_(7)
    graph.replay()
    assert [tensor.tolist() for tensor in kept] == [[8.0, 8.0], [8.0]]


def test_intermediates_are_freed_after_their_last_use() -> None:
    """Recorded through an operator that notes, at each call, how many of the earlier results still have memory."""
    alive: list[int] = []
    memory: list[int] = []
    library = torch.library.Library("recording_device_test", "DEF")
    library.define("observed(Tensor given) -> Tensor")

    def observed(given: torch.Tensor) -> torch.Tensor:
        alive.append(sum(not torch.UntypedStorage._expired(reference) for reference in memory))
        result = given + 1
        memory.append(result.untyped_storage()._weak_ref())
        return result

    library.impl("observed", observed, "CPU")
    given, out = torch.zeros(4), torch.zeros(4)

    def work() -> None:
        value = given
        for _ in range(20):
            value = torch.ops.recording_device_test.observed(value)
        out.copy_(value)

    graph = capture(work)
    assert alive[-1] == 19, "the capture itself keeps everything, so that the count is known to count"
    alive.clear()
    memory.clear()
    graph.replay()
    assert out.tolist() == [20.0] * 4
    assert max(alive) == 1, "the operator's own argument"


def test_an_error_in_a_capture_leaves_the_device_usable() -> None:
    given, out = torch.ones(1), torch.zeros(1)
    with pytest.raises(GraphCaptureError):
        capture(lambda: given.item())
    assert given.item() == 1.0
    assert not torch.is_inference_mode_enabled()
    graph = capture(lambda: out.copy_(given + 1))
    given.fill_(4)
    graph.replay()
    assert out.item() == 5.0


def test_a_refused_survivor_leaves_the_device_usable() -> None:
    given, kept = torch.ones(1), []
    with pytest.raises(GraphCaptureError):
        capture(lambda: kept.append(given + 1))
    assert given.tolist() == [1.0]
    assert not torch.is_inference_mode_enabled()


def test_an_abandoned_capture_records_nothing_more() -> None:
    running = RecordingDevice().begin_capture()
    running.abandon()
    assert torch.ones(1).item() == 1.0


def test_an_empty_capture_replays_to_nothing() -> None:
    graph = capture(lambda: None)
    graph.replay()
    assert graph.num_nodes == 0


def test_two_captures_may_follow_each_other_over_the_same_buffers() -> None:
    given, middle, out = torch.ones(1), torch.zeros(1), torch.zeros(1)
    first = capture(lambda: middle.copy_(given + 1))
    second = capture(lambda: out.copy_(middle * 10))
    given.fill_(4)
    first.replay()
    second.replay()
    assert out.item() == 50.0


def test_memory_is_counted_in_bytes() -> None:
    device = RecordingDevice()
    assert 0 < device.memory_free_bytes() <= device.memory_total_bytes()
