from dataclasses import replace

import pytest
import torch

from legato.device.recording import RecordingDevice
from legato.errors import StaleGraphError
from legato.graphs.captured import CapturedGraph, GraphStore
from legato.graphs.epoch import BufferEpoch
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode
from legato.graphs.segments import SegmentedCapture


class Owner:
    def __init__(self) -> None:
        self.buffer = torch.zeros(4)
        self.out = torch.zeros(4)

    def tensors(self) -> list[torch.Tensor]:
        return [self.buffer, self.out]


def key(num_tokens: int = 1) -> GraphKey:
    return GraphKey(mode=GraphMode.FULL, num_tokens=num_tokens)


def test_the_epoch_stays_while_nothing_moves() -> None:
    owner, epoch = Owner(), BufferEpoch()
    epoch.watch(owner.tensors)
    before = epoch.current()
    owner.buffer.fill_(3)
    assert epoch.current() == before


def test_a_rebuilt_buffer_raises_the_epoch_once() -> None:
    owner, epoch = Owner(), BufferEpoch()
    epoch.watch(owner.tensors)
    before = epoch.current()
    owner.buffer = owner.buffer.clone()
    assert epoch.current() == before + 1
    assert epoch.current() == before + 1


def test_a_moved_storage_raises_the_epoch() -> None:
    owner, epoch = Owner(), BufferEpoch()
    epoch.watch(owner.tensors)
    before = epoch.current()
    owner.buffer.set_(torch.zeros(9).untyped_storage(), 0, (4,))
    assert epoch.current() == before + 1


def store_with_a_graph(owner: Owner) -> GraphStore:
    epoch = BufferEpoch()
    epoch.watch(owner.tensors)
    store = GraphStore(epoch)
    parts = SegmentedCapture(RecordingDevice()).capture(lambda: owner.out.copy_(owner.buffer + 1), whole=True)
    store.add(CapturedGraph(key=key(), parts=parts, epoch=epoch.current(), capture_ms=1.0))
    return store


def test_a_graph_is_replayed_while_its_buffers_stay() -> None:
    owner = Owner()
    store = store_with_a_graph(owner)
    owner.buffer.fill_(4)
    store.replay(key())
    assert owner.out.tolist() == [5.0] * 4
    assert store.stale_keys() == []


def test_a_stale_graph_is_refused_and_nothing_runs() -> None:
    owner = Owner()
    store = store_with_a_graph(owner)
    old_out, owner.buffer = owner.out, torch.full((4,), 8.0)
    old_out.zero_()
    with pytest.raises(StaleGraphError, match="moved"):
        store.replay(key())
    assert old_out.tolist() == [0.0] * 4
    assert store.stale_keys() == [key()]


def test_stale_graphs_are_named_until_they_are_dropped_however_often_one_asks() -> None:
    owner = Owner()
    store = store_with_a_graph(owner)
    assert store.stale_keys() == []
    owner.out = owner.out.clone()
    assert store.stale_keys() == store.stale_keys() == [key()]
    store.drop(key())
    assert store.stale_keys() == []


def test_a_graph_of_an_old_epoch_is_stale_wherever_it_is_added() -> None:
    store = store_with_a_graph(Owner())
    assert store.stale_keys() == []
    store.add(replace(store.graphs[key()], key=key(2), epoch=-1))
    assert store.stale_keys() == [key(2)]


def test_a_dropped_graph_is_gone_and_dropping_twice_is_no_error() -> None:
    store = store_with_a_graph(Owner())
    store.drop(key())
    store.drop(key())
    assert store.graphs == {}


def test_a_graph_counts_the_nodes_and_bytes_of_its_segments() -> None:
    (graph,) = store_with_a_graph(Owner()).graphs.values()
    assert (graph.num_nodes, graph.num_bytes) == (2, 16)  # the product's four floats keep their place
