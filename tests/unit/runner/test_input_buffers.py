"""What a step's input buffers hold after any sequence of batches, however few of them had to be copied."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.runner.buffers import InputBuffer, StepBuffers

CAPACITY = 6
PAD = 9


def buffer() -> InputBuffer:
    return InputBuffer.create("rows", CAPACITY, torch.int64, PAD, torch.device("cpu"))


batches = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=CAPACITY).map(tuple), st.integers(0, 2), st.booleans()), max_size=12
)


@settings(deadline=None)
@given(batches)
def test_the_device_holds_the_latest_batch_and_its_padding(batches: list[tuple[tuple[int, ...], int, bool]]) -> None:
    rows = buffer()
    for values, padding, as_list in batches:
        padded_len = min(CAPACITY, len(values) + padding)
        rows.swap()
        rows.fill(list(values) if as_list else values, padded_len)
        assert rows.device[:padded_len].tolist() == [*values, *[PAD] * (padded_len - len(values))]


def test_a_batch_that_the_device_holds_is_not_copied_again() -> None:
    rows = buffer()
    rows.fill((1, 2), 4)
    version = rows.device._version
    rows.fill((1, 2), 4)
    assert rows.device._version == version
    rows.fill((1, 2), 3)
    assert rows.device._version > version


@pytest.mark.parametrize("pad_value", [None, 5])
def test_values_under_another_padding_are_copied(pad_value: int | None) -> None:
    rows = buffer()
    rows.fill((1, 2), 4, pad_value=7)
    rows.fill((1, 2), 4, pad_value=pad_value)
    assert rows.device[:4].tolist() == [1, 2, *[PAD if pad_value is None else pad_value] * 2]


def test_all_inputs_are_staged_twice() -> None:
    buffers = StepBuffers.create(
        max_num_seqs=2,
        max_num_batched_tokens=4,
        hidden_size=2,
        vocab_size=3,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    before = [each.host_np for each in buffers.inputs]
    buffers.swap_staging()
    assert all(each.host_np is not old for each, old in zip(buffers.inputs, before, strict=True))
    buffers.swap_staging()
    assert all(each.host_np is old for each, old in zip(buffers.inputs, before, strict=True))
