"""Attention over the steps of an unrolled head is that over one long row of keys, under a mask."""

import pytest
import torch

from legato.training.unrolled_attention import (
    flash,
    flash_gradients,
    masked_attention,
    unrolled_attention,
    unrolled_mask,
)

SHAPE = (2, 3, 32, 8)  # num_texts, num_heads, length, head_dim


def drawn(num_steps: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Queries, then keys, then values of all steps; scores are large enough that shares differ."""
    random = torch.Generator().manual_seed(num_steps)
    each = (torch.randn(SHAPE, generator=random) * 1.5 for _ in range(2 * num_steps + 1))
    return [tensor.to(dtype).requires_grad_() for tensor in each]


@pytest.mark.parametrize("num_steps", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_outputs_and_gradients_are_those_of_masked_attention(num_steps, dtype, apart):
    given = drawn(num_steps, dtype)
    wide = [tensor.detach().float().requires_grad_() for tensor in given]
    weights = torch.randn(SHAPE, generator=torch.Generator().manual_seed(9))
    attended = unrolled_attention(given[0], given[1 : num_steps + 1], given[num_steps + 1 :])
    expected = masked_attention(wide[0], wide[1 : num_steps + 1], wide[num_steps + 1 :])
    assert attended.dtype == dtype
    torch.testing.assert_close(attended.float(), expected, atol=apart, rtol=apart)
    gradients = torch.autograd.grad((attended.float() * weights).sum(), given)
    oracle = torch.autograd.grad((expected * weights).sum(), wide)
    for gradient, right in zip(gradients, oracle, strict=True):
        torch.testing.assert_close(gradient.float(), right, atol=3 * apart, rtol=apart)


def test_what_a_gpu_is_asked_for_is_what_pytorch_takes():
    """No GPU is needed: a tensor without memory goes through the same checks of arguments and shapes."""
    query = torch.empty(SHAPE, dtype=torch.bfloat16, device="meta")
    attended, log_sum, kept = flash(query, query, query)
    assert (attended.shape, log_sum.shape, log_sum.dtype) == (SHAPE, SHAPE[:3], torch.float32)
    gradients = flash_gradients(query, query, query, query, attended, log_sum, kept)
    assert [gradient.shape for gradient in gradients] == [SHAPE] * 3


def test_a_position_sees_the_first_step_up_to_itself_and_later_ones_at_itself():
    mask = unrolled_mask(3, 2, torch.device("cpu"))
    assert mask.int().tolist() == [
        [1, 0, 0, 1, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 1, 0, 0, 1],
    ]
