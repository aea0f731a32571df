"""The kernel that forbids tokens against torch, in Triton's interpreter: what runs on a GPU, on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import token_mask_triton
from legato.kernels.token_mask import forbid_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [1, 33, 4096, 9001])
def test_the_kernel_forbids_what_torch_does(vocab_size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, vocab_size).to(dtype)
    bits = torch.randint(-(2**31), 2**31, (3, -(-vocab_size // 32)), dtype=torch.int64).to(torch.int32)
    bits[1] = 0
    places = torch.tensor([5, 1, 2])
    expected, given = logits.clone(), logits.clone()
    forbid_reference(expected, places, bits)
    token_mask_triton.forbid(given, places, bits)
    assert torch.equal(given, expected)
