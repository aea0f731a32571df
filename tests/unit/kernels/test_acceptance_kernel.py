"""The judgement of drafts against torch, in Triton's interpreter: on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import acceptance_triton
from legato.kernels.acceptance import Accepted, Coins, Verified, accept_reference
from legato.sampling.acceptance import SyntheticAcceptance
from legato.sampling.seeds import mix_seed

NUM_ROWS, MOST = 40, 6


def verified(width: int, *, given: bool, agreeing: float) -> Verified:
    """Return draws of 32 requests that equal the drafts with the chance ``agreeing``."""
    torch.manual_seed(width)
    rows, drafts = torch.randperm(NUM_ROWS)[:32], torch.randint(0, 100, (NUM_ROWS, MOST))
    sampled = torch.randint(100, 200, (32, width))
    sampled[:, :-1] = torch.where(torch.rand(32, width - 1) < agreeing, drafts[rows, : width - 1], sampled[:, :-1])
    positions = torch.randint(0, 5000, (32, width))
    return Verified(
        sampled=sampled,
        given=torch.randint(-2, 2, (32,)).mul(100) if given else None,
        rows=rows,
        drafts=drafts,
        num_drafts=torch.randint(0, width, (32,)),
        first_positions=positions[:, 0],
        first_places=torch.arange(0, 32 * width, width, dtype=torch.int64 if given else torch.int32),
    )


def place_for(width: int) -> Accepted:
    outcome = torch.full((32, MOST + 2), -7)
    return Accepted(
        outcome[:, :width], outcome[:, -1], torch.zeros_like(outcome[:, 0]), torch.zeros_like(outcome[:, 0])
    )


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("by_coins", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4, 7])
def test_the_same_drafts_stand_as_with_torch(width: int, by_coins: bool, given: bool) -> None:
    judged = verified(width, given=given, agreeing=0.7)
    bounds = SyntheticAcceptance((0.9, 0.5, 0.7, 1.0, 0.6, 0.8)[: max(1, width - 1)], torch.device("cpu")).bounds
    seeds = torch.tensor([[0, mix_seed(row), 0] for row in range(NUM_ROWS)])[:, 1]
    coins = Coins(seeds=seeds, bounds=bounds) if by_coins else None
    found, expected = place_for(width), place_for(width)
    acceptance_triton.accept(judged, found, coins)
    accept_reference(judged, expected, coins)
    for one, other, name in zip(found, expected, found._fields, strict=True):
        assert torch.equal(one, other), name
    assert found.num_tokens.min() == 1
    assert width == 1 or 1 < found.num_tokens.double().mean() < width
    assert found.tokens._base is not None and (found.tokens._base[:, width:-1] == -7).all()
