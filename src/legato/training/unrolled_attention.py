"""Attention of an unrolled head: over all of the first step up to a position, and over later steps at it alone.

Owns how the two parts are put together. With the logarithm ``l`` of the sum of exponentials over both, the softmax of
each part is ``exp(score - l)``, so that the gradient of the first is what a flash attention kernel (arXiv 2205.14135,
algorithm 4) computes from ``l`` and the whole output, and no mask of [length, steps * length] is gone through. As in
ring attention (arXiv 2310.01889), whose blocks are put together alike.
"""

from typing import Any

import torch
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Without cuDNN's, which is planned anew for each of the many shapes that batches have."""


def unrolled_attention(query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """Attend with the queries of the latest step to the keys and values of all steps so far.

    All are [num_texts, num_heads, length, head_dim], and so is what is returned.
    """
    if len(keys) == 1:
        with sdpa_kernel(_KERNELS):
            return functional.scaled_dot_product_attention(query, keys[0], values[0], is_causal=True)
    if not _has_flash(query, keys[0], values[0]):
        return masked_attention(query, keys, values)
    later_keys, later_values = torch.stack(keys[1:]), torch.stack(values[1:])
    attended: torch.Tensor = _UnrolledAttention.apply(query, keys[0], values[0], later_keys, later_values)
    return attended


def masked_attention(query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """Return what ``unrolled_attention`` returns, by a mask over the keys of the steps side by side."""
    mask = unrolled_mask(query.shape[2], len(keys) - 1, query.device)
    with sdpa_kernel(_KERNELS):
        return functional.scaled_dot_product_attention(query, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask)


def unrolled_mask(length: int, step: int, device: torch.device) -> torch.Tensor:
    """Return what positions see at ``step``, [length, (step + 1) * length] bool, keys of the steps side by side."""
    first = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    own = torch.eye(length, dtype=torch.bool, device=device)
    return torch.cat([first, *[own] * step], dim=1)


def _has_flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether PyTorch's flash attention serves: not on old GPUs, nor for odd sizes of heads."""
    if query.device.type == "cpu":
        return True
    return query.shape[-1] % 8 == 0 and can_use_flash_attention(SDPAParams(query, key, value, None, 0.0, True, False))


class _UnrolledAttention(torch.autograd.Function):
    """Both parts, and their gradients. Scores, and what is made of them, are float32."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        later_keys: torch.Tensor,  # [num_later_steps, num_texts, num_heads, length, head_dim]
        later_values: torch.Tensor,  # as later_keys
    ) -> torch.Tensor:
        first, first_sum, kept = flash(query, key, value)
        scores = (query.float() * later_keys.float()).sum(-1) * query.shape[-1] ** -0.5
        whole_sum = torch.cat([first_sum.unsqueeze(0), scores]).logsumexp(0)  # [num_texts, num_heads, length] float32
        shares = (scores - whole_sum).exp()
        wide = first * (first_sum - whole_sum).exp().unsqueeze(-1) + (shares.unsqueeze(-1) * later_values).sum(0)
        attended: torch.Tensor = wide.to(query.dtype)
        ctx.save_for_backward(query, key, value, later_keys, later_values, attended, whole_sum, shares)
        ctx.kept = kept
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value, later_keys, later_values, attended, whole_sum, shares = ctx.saved_tensors
        of_query, of_key, of_value = flash_gradients(
            gradients[0], query, key, value, attended, whole_sum.contiguous(), ctx.kept
        )
        wide = gradients[0].float()
        mean = (wide * attended).sum(-1)
        of_scores = shares * ((wide * later_values).sum(-1) - mean) * query.shape[-1] ** -0.5
        of_scores, shares = of_scores.unsqueeze(-1), shares.unsqueeze(-1)
        return (
            (of_query + (of_scores * later_keys).sum(0)).to(query.dtype),
            of_key,
            of_value,
            (of_scores * query).to(query.dtype),
            (shares * wide).to(query.dtype),
        )


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, tuple[Any, ...]]:
    """Attend causally; return the output, the logarithm of each query's sum, and what the gradient needs besides."""
    if query.device.type == "cpu":
        attended, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=True
        )
        return attended, log_sum, ()
    attended, log_sum, *kept, _ = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, is_causal=True)
    return attended, log_sum, tuple(kept)


def flash_gradients(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attended: torch.Tensor,
    log_sum: torch.Tensor,
    kept: tuple[Any, ...],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value where ``attended`` and ``log_sum`` are of more keys than these."""
    given = (gradient, query, key, value, attended, log_sum)
    if query.device.type == "cpu":
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, True)
    else:
        *sizes, seed, offset = kept
        found = torch.ops.aten._scaled_dot_product_flash_attention_backward(*given, *sizes, 0.0, True, seed, offset)
    of_query, of_key, of_value = found
    return of_query, of_key, of_value
