"""How many KV blocks fit, and how many are needed. Pure arithmetic: bytes and tokens in, blocks out."""

from collections.abc import Sequence

from legato.errors import ConfigError
from legato.kvcache.spec import LayerGroup

NUM_NULL_BLOCKS = 1


def bytes_per_block(layer_groups: Sequence[LayerGroup], block_size: int, element_bytes: int) -> int:
    """Return the bytes that one block takes in all layers of all groups."""
    return sum(len(group.layers) * group.spec.bytes_per_block(block_size, element_bytes) for group in layer_groups)


def blocks_for_tokens(layer_groups: Sequence[LayerGroup], num_tokens: int, block_size: int) -> int:
    """Return the blocks that one sequence of ``num_tokens`` occupies: the most that any group needs."""
    return max(group.spec.blocks_needed(num_tokens, block_size) for group in layer_groups)


def blocks_in_budget(
    layer_groups: Sequence[LayerGroup],
    *,
    block_size: int,
    element_bytes: int,
    budget_bytes: int,
    max_model_len: int,
    num_drafts: int = 0,
) -> int:
    """Return the blocks that fit in ``budget_bytes``, the null block included.

    ``num_drafts``: tokens that are fed behind the last of a sequence. Raises ConfigError where not even one sequence of
    ``max_model_len`` tokens, with these, fits beside the null block.
    """
    block_bytes = bytes_per_block(layer_groups, block_size, element_bytes)
    num_blocks = max(budget_bytes, 0) // block_bytes
    num_needed = blocks_for_tokens(layer_groups, max_model_len + num_drafts, block_size) + NUM_NULL_BLOCKS
    if num_blocks < num_needed:
        raise ConfigError(
            "the KV cache is too small for one sequence of --max-model-len",
            {
                "requested": f"--max-model-len {max_model_len}, which needs {num_needed} blocks of {block_bytes} bytes"
                f" ({num_needed * block_bytes} bytes, the null block included)",
                "found": f"{budget_bytes} bytes for the KV cache, which hold {num_blocks} blocks",
                "options": _options(
                    layer_groups, block_size, num_blocks, num_needed * block_bytes, max_model_len, num_drafts
                ),
            },
        )
    return num_blocks


def _options(
    layer_groups: Sequence[LayerGroup],
    block_size: int,
    num_blocks: int,
    needed_bytes: int,
    max_model_len: int,
    num_drafts: int,
) -> str:
    options = [f"--kv-cache-memory-bytes {needed_bytes}", "a larger --gpu-memory-utilization"]
    longest = (num_blocks - NUM_NULL_BLOCKS) * block_size - num_drafts
    if 0 < longest < max_model_len and blocks_for_tokens(layer_groups, longest + num_drafts, block_size) < num_blocks:
        options.insert(0, f"--max-model-len {longest}")
    return " | ".join(options)
