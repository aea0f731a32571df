"""Greedy sampling's kernel against torch, in Triton's interpreter: what runs on a GPU, on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import argmax_triton
from legato.kernels.argmax import argmax_reference
from legato.kernels.split_workspace import shared_workspace

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NAN, INFINITY = float("nan"), float("inf")


def assert_same(values: torch.Tensor) -> None:
    found = argmax_triton.argmax(values)
    assert found.dtype == torch.int64
    assert found.tolist() == argmax_reference(values).tolist()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 5), (3, 4096), (2, 49152), (2, 20001), (600, 3)])
def test_the_largest_of_each_row_is_found(rows: int, size: int, dtype: torch.dtype) -> None:
    assert_same(torch.randn(rows, size).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_equal_values_the_first_is_taken(dtype: torch.dtype) -> None:
    values = torch.randint(0, 3, (4, 9000)).to(dtype)
    values[1] = -INFINITY
    values[2] = -1.0
    values[3, :] = 0.0
    values[3, 0::2] = -0.0
    assert_same(values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_a_number_is_the_largest(dtype: torch.dtype) -> None:
    values = torch.randn(4, 9000).to(dtype)
    values[0, 7000] = INFINITY
    values[1, 8000], values[1, 3] = NAN, INFINITY
    values[2, [100, 8999]] = NAN
    values[3, 5000] = torch.tensor(NAN).neg()
    assert_same(values)


def test_negative_values_keep_their_order() -> None:
    assert_same(-torch.rand(3, 9000) - 1.0)
    assert_same(torch.full((1, 9000), -INFINITY).index_fill_(1, torch.tensor([8500]), -3e38))


def test_rows_may_lie_apart_and_a_search_can_be_repeated() -> None:
    values = torch.randn(3, 9000)[:, :8500]
    for _ in range(2):
        assert_same(values)
    assert not shared_workspace(values.device).counters.any()


@pytest.mark.parametrize("rows", [1, 2, 64, 256, 1024, 3000])
@pytest.mark.parametrize("size", [3, 32000, 49152, 128256, 262144])
def test_the_parts_of_a_batch_are_a_power_of_two_and_fit_their_workspace(rows: int, size: int) -> None:
    splits = argmax_triton.split_count(rows, size)
    assert splits >= 1 and splits & (splits - 1) == 0
    shared_workspace(torch.device("cpu")).check(blocks=rows, splits=splits, elements=2)


@pytest.mark.parametrize("size", [40, 9000])
def test_an_index_is_given_by_its_name_where_it_is_wanted(size: int) -> None:
    values, names, out = torch.randn(3, size), torch.randperm(10_000)[:size], torch.zeros(2, 3, dtype=torch.int64)
    argmax_triton.argmax(values, names, out[1])
    assert out.tolist() == [[0, 0, 0], names[values.argmax(dim=-1)].tolist()]
    assert argmax_reference(values, names, out=out[0]).tolist() == out[1].tolist()
