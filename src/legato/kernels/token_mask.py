"""Forbidding tokens by masks of packed bits, some rows of a batch among others that are free."""

import torch


def allowed_only(logits: torch.Tensor, places: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``logits`` [num_rows, vocab] with -inf for the tokens that rows ``places`` may not have.

    ``places`` [num_masked] int64, each once. ``bits`` [num_masked, ceil(vocab / 32)] int32: bit ``i % 32`` of word
    ``i // 32`` is set where token ``i`` is allowed. Other rows are as they were.
    """
    out = logits.clone()
    if logits.is_cuda:
        from legato.kernels import token_mask_triton

        token_mask_triton.forbid(out, places, bits)
    else:
        forbid_reference(out, places, bits)
    return out


def forbid_reference(logits: torch.Tensor, places: torch.Tensor, bits: torch.Tensor) -> None:
    """Write what :func:`allowed_only` says into ``logits``, with torch alone."""
    vocab_size = logits.shape[1]
    shifts = torch.arange(32, dtype=torch.int32, device=bits.device)
    allowed = (bits.unsqueeze(-1) >> shifts) & 1  # [num_masked, words, 32]
    allowed = allowed.flatten(1)[:, :vocab_size].to(torch.bool)
    masked = logits.index_select(0, places).masked_fill_(~allowed, float("-inf"))
    logits.index_copy_(0, places, masked)
