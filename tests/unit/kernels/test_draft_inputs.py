"""What the passes of a drafter begin with, against torch, in Triton's interpreter: on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import draft_inputs_triton
from legato.kernels.draft_inputs import Judged, draft_inputs_reference

NULL_ROW = 8


@pytest.mark.parametrize("state_size", [None, 3, 2500])
@pytest.mark.parametrize("num_passes", [0, 1, 3, 5])
@pytest.mark.parametrize(("max_blocks", "block_size"), [(4, 16), (1030, 2), (40, 1)])
def test_passes_stand_behind_the_last_new_token(
    max_blocks: int, block_size: int, num_passes: int, state_size: int | None
) -> None:
    torch.manual_seed(0)
    rows = torch.tensor([5, 0, 8, 2, 8])
    outcome = torch.randint(0, 50_000, (7, 5))[:5]
    outcome[:, -1] = torch.tensor([1, 4, 2, 3, 4])
    judged = Judged(
        rows=rows,
        outcome=outcome,
        last_positions=torch.tensor([33, 0, 1 << 40, 17, 9]),
        last_places=torch.tensor([0, 7, 19, 13, 19]),
        states=None if state_size is None else torch.randn(20, state_size + 1, dtype=torch.bfloat16)[:, 1:],
    )
    block_table = torch.randint(0, 1 << 20, (9, max_blocks), dtype=torch.int32)
    more = {"null_row": NULL_ROW, "num_passes": num_passes, "block_size": block_size, "max_position": 34}
    found = draft_inputs_triton.draft_inputs(judged, block_table, **more)
    expected = draft_inputs_reference(judged, block_table, **more)
    for one, other, name in zip(found, expected, expected._fields, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name
    assert found[0].tolist() == [outcome[request, count - 1] for request, count in enumerate(outcome[:, -1])]
    assert found[1].tolist() == [33, 0, 0, 17, 0]
