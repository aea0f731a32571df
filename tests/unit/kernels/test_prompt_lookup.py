"""Prompt lookup against torch, in Triton's interpreter: on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import prompt_lookup_triton
from legato.kernels.prompt_lookup import NewTokens, look_up_reference

NULL_ROW = 12


@pytest.mark.parametrize("num_drafts", [0, 1, 5])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 4), (2, 3), (3, 5)])
@pytest.mark.parametrize("capacity", [40, 4500])
def test_the_same_drafts_are_found_as_with_torch(capacity: int, shortest: int, longest: int, num_drafts: int) -> None:
    torch.manual_seed(capacity + longest)
    history = torch.randint(0, 4, (NULL_ROW + 1, capacity), dtype=torch.int32)
    last_positions = torch.randint(8, capacity, (10,))
    last_positions[[1, 2, 9]] = torch.tensor([0, capacity - 1, 0])
    num_tokens = torch.randint(1, 5, (10,))
    num_tokens[1] = 1
    outcome = torch.cat([torch.randint(0, 4, (10, 4)), num_tokens.unsqueeze(1)], dim=1)
    rows = torch.tensor([4, 0, 7, 2, 9, 11, 1, 3, 10, NULL_ROW])
    new = NewTokens(rows=rows, tokens=outcome[:, :4], num_tokens=outcome[:, -1], last_positions=last_positions)
    expected_history = history.clone()
    found = prompt_lookup_triton.look_up(history, new, num_drafts, shortest, longest)
    expected = look_up_reference(expected_history, new, num_drafts=num_drafts, shortest=shortest, longest=longest)
    assert found.dtype == expected.dtype and torch.equal(found[:-1], expected[:-1])
    assert torch.equal(history[:NULL_ROW], expected_history[:NULL_ROW])


def test_the_longest_run_counts_before_the_latest_and_then_repeats() -> None:
    history = torch.zeros(2, 16, dtype=torch.int32)
    history[1, :9] = torch.tensor([1, 2, 3, 9, 3, 7, 2, 3, 0])
    tokens, numbers = torch.tensor([[9, 3]]), torch.tensor([2])
    new = NewTokens(rows=torch.tensor([1]), tokens=tokens, num_tokens=numbers, last_positions=torch.tensor([9]))
    assert prompt_lookup_triton.look_up(history, new, 7, 1, 3).tolist() == [[7, 2, 3, 9, 3, 7, 2]]
