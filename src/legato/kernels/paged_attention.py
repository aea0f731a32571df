"""What the paged attention kernels compute, in plain torch operations. Owns correctness, not speed."""

import torch


def paged_attention_reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    *,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """Return the attention of every token to its own sequence, in float32; zeros for tokens of no request.

    ``query`` [num_tokens, num_heads, head_dim], caches [num_blocks, block_size, num_kv_heads, head_dim],
    ``query_start_loc`` [num_reqs + 1], ``seq_lens`` [num_reqs], ``block_table`` [num_reqs, max_blocks_per_req].
    """
    out = torch.zeros_like(query, dtype=torch.float32)
    starts = query_start_loc.tolist()
    for index, seq_len in enumerate(seq_lens.tolist()):
        rows = slice(starts[index], starts[index + 1])
        if rows.start == rows.stop:
            continue
        blocks = block_table[index, : -(-seq_len // key_cache.shape[1])].long()
        keys = key_cache[blocks].flatten(0, 1)[:seq_len].float()
        values = value_cache[blocks].flatten(0, 1)[:seq_len].float()
        out[rows] = _attend(query[rows].float(), keys, values, scale, window)
    return out


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, window: int | None
) -> torch.Tensor:
    """Attend the last ``query_len`` tokens of a sequence, causally (arXiv 1706.03762).

    ``query`` [query_len, num_heads, head_dim], ``keys`` and ``values`` [seq_len, num_kv_heads, head_dim], float32.
    """
    grouped = query.unflatten(1, (keys.shape[1], -1))  # [query_len, num_kv_heads, group, head_dim]
    position = torch.arange(keys.shape[0], device=query.device)
    last = position[keys.shape[0] - query.shape[0] :, None]
    hidden = position > last  # [query_len, seq_len]
    if window is not None:
        hidden = hidden | (position <= last - window)
    scores = torch.einsum("qkgd,skd->kgqs", grouped, keys) * scale
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("kgqs,skd->qkgd", weights, values).flatten(1, 2)
