"""A step's reads and writes of its rows against torch, in Triton's interpreter: on CPU tensors."""

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
from legato.kernels.row_state import RowState, advance_reference, uniform_inputs_reference

NUM_ROWS = 9
MOST_DRAFTS = 5


def state_of(max_blocks: int) -> RowState:
    """Return rows that hold anything, none of them after its last block but one."""
    torch.manual_seed(0)
    return RowState(
        next_tokens=torch.randint(0, 50_000, (NUM_ROWS,)),
        num_computed=torch.randint(0, 3, (NUM_ROWS,)),
        drafts=torch.randint(0, 50_000, (NUM_ROWS, MOST_DRAFTS)),
        block_table=torch.randint(0, 1 << 20, (NUM_ROWS, max_blocks), dtype=torch.int32),
    )


@pytest.mark.parametrize("width", [1, 2, 4, 6])
@pytest.mark.parametrize(("max_blocks", "block_size"), [(4, 16), (1024, 16), (1500, 1), (7, 48)])
def test_a_step_reads_what_its_rows_hold(max_blocks: int, block_size: int, width: int) -> None:
    rows, state = torch.tensor([5, 0, 8, 8]), state_of(max_blocks)
    state.num_computed[5] = max_blocks * block_size - width
    state.num_computed[8] = 0
    found = row_state_triton.uniform_inputs(rows, state, width, block_size, 40)
    expected = uniform_inputs_reference(rows, state, width=width, block_size=block_size, max_position=40)
    for one, other, name in zip(found, expected, expected._fields, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name
    assert found[1].max() == 40 and found[2].max() == max_blocks * block_size


def test_a_plain_step_has_no_drafts() -> None:
    rows, state = torch.tensor([3]), state_of(4)._replace(drafts=torch.zeros(NUM_ROWS, 0, dtype=torch.int64))
    input_ids, positions, next_positions, *_ = row_state_triton.uniform_inputs(rows, state, 1, 16, 1 << 20)
    assert (input_ids, positions) == (state.next_tokens[rows], state.num_computed[rows])
    assert next_positions == positions + 1


@pytest.mark.parametrize("num_drafts", [None, 0, 1, 3])
def test_rows_advance_and_the_null_row_stays(num_drafts: int | None) -> None:
    rows, seq_lens, token_ids = torch.tensor([3, 8, 0, 8]), torch.tensor([17, 1, 90, 1]), torch.tensor([11, 7, 13, 7])
    drafts = None if num_drafts is None else torch.tensor([[1, 2, 3], [4, 4, 4], [7, 8, 9], [4, 4, 4]])[:, :num_drafts]
    found, expected = state_of(2), state_of(2)
    row_state_triton.advance(rows, seq_lens, token_ids, found, 8, drafts)
    advance_reference(rows, seq_lens, token_ids, expected, 8, drafts)
    assert all(map(torch.equal, found, expected))
    assert found.num_computed[8] == 0 and found.next_tokens[3] == 11
    assert not num_drafts or found.drafts[0, 0] == 7


def test_drafts_of_a_chain_lie_pass_by_pass() -> None:
    rows, found = torch.tensor([2, 6]), state_of(2)
    row_state_triton.advance(rows, rows, rows, found, 8, torch.tensor([[10, 20], [11, 21], [12, 22]]).t())
    assert found.drafts[rows, :3].tolist() == [[10, 11, 12], [20, 21, 22]]


def test_more_requests_than_one_program_takes_all_advance() -> None:
    rows, found = torch.randperm(2000), RowState(*torch.zeros(2, 2001, dtype=torch.int64), *state_of(1)[2:])
    row_state_triton.advance(rows, rows + 1, rows + 5, found, 2000, None)
    assert torch.equal(found.next_tokens[:2000], torch.arange(2000) + 5)
    assert torch.equal(found.num_computed[:2000], torch.arange(2000) + 1)
