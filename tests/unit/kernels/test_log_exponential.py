"""The noise of sampling against torch, in Triton's interpreter: on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import log_exponential_triton
from legato.kernels.log_exponential import log_exponential_reference
from legato.sampling.noise import token_hashes
from legato.sampling.seeds import mix_seed


@pytest.mark.parametrize("apart", [False, True])
def test_the_noise_is_that_of_torch_but_for_rounding(apart: bool) -> None:
    hashes = token_hashes(3000, torch.device("cpu"))
    seeds = torch.tensor([[0, mix_seed(seed)] for seed in range(4)])[:, 1]
    positions = torch.tensor([0, 1, 77, 1 << 40])
    if apart:
        hashes = hashes[torch.stack([torch.randperm(3000) for _ in range(4)])]
    found = log_exponential_triton.log_exponential(seeds, positions, hashes)
    expected = log_exponential_reference(seeds, positions, hashes)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert found.isfinite().all()


def test_the_ends_of_what_can_be_drawn_are_finite() -> None:
    """Seed and position make the key 0, so that the bits are odd numbers that the hash alone decides."""
    hashes = torch.arange(-(2**31), 2**31 - 1, 2**19 + 1, dtype=torch.int64).to(torch.int32)
    given = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), hashes
    found, expected = log_exponential_triton.log_exponential(*given), log_exponential_reference(*given)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert found.isfinite().all() and found.max() > 2.0 and found.min() < -7.0
