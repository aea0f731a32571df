"""A decode step's reads and writes of its rows against torch, in Triton's interpreter: on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import row_state_triton
from legato.kernels.row_state import advance_reference, decode_inputs_reference

NUM_ROWS = 9


@pytest.mark.parametrize(("max_blocks", "block_size"), [(4, 16), (1024, 16), (1500, 1), (7, 48)])
def test_a_step_reads_what_its_rows_hold(max_blocks: int, block_size: int) -> None:
    torch.manual_seed(0)
    rows = torch.tensor([5, 0, 8, 8])
    seq_lens = torch.tensor([max_blocks * block_size, 1, block_size + 1, 3])
    next_tokens = torch.randint(0, 50_000, (NUM_ROWS,))
    block_table = torch.randint(0, 1 << 20, (NUM_ROWS, max_blocks), dtype=torch.int32)
    found = row_state_triton.decode_inputs(rows, seq_lens, next_tokens, block_table, block_size)
    expected = decode_inputs_reference(rows, seq_lens, next_tokens, block_table, block_size)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_rows_advance_and_the_null_row_stays() -> None:
    rows, seq_lens, token_ids = torch.tensor([3, 8, 0, 8]), torch.tensor([17, 1, 90, 1]), torch.tensor([11, 7, 13, 7])
    found, expected = torch.arange(2 * NUM_ROWS).view(2, NUM_ROWS), torch.arange(2 * NUM_ROWS).view(2, NUM_ROWS)
    row_state_triton.advance(rows, seq_lens, token_ids, *found, 8)
    advance_reference(rows, seq_lens, token_ids, *expected, 8)
    assert torch.equal(found, expected)
    assert found[1, 8] == 0 and found[0, 3] == 11


def test_more_requests_than_one_program_takes_all_advance() -> None:
    rows = torch.randperm(2000)
    found = torch.zeros(2, 2001, dtype=torch.int64)
    row_state_triton.advance(rows, rows + 1, rows + 5, *found, 2000)
    assert torch.equal(found[0, :2000], torch.arange(2000) + 5)
    assert torch.equal(found[1, :2000], torch.arange(2000) + 1)
