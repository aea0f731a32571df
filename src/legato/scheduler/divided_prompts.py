"""Prompts that one step cannot hold and two can. Owns where the first of the two ends. Pure.

Either way the last of them end with the second step, where steps take time in proportion to their tokens. Those of the
first wait for that step alone, so it should be short and yet hold many: the first ``j`` prompts, of ``t`` tokens, each
spare themselves the rest of all ``T`` tokens, ``j * (T - t)`` in sum.
"""

from collections.abc import Sequence


def tokens_of_the_first_step(num_left: Sequence[int], room: int, decode_width: int = 1) -> int | None:
    """Return after how many tokens the first step ends best; None: it takes as many as it can.

    ``num_left``: tokens that each prompt has left, in the order of service; ``room``: those that one step can have;
    ``decode_width``: those that each prompt of the first step takes of the second one's room.
    """
    total = sum(num_left)
    if not room < total <= 2 * room:
        return None
    best, best_spared, num_taken = None, 0, 0
    for num_prompts, length in enumerate(num_left, start=1):
        num_taken += length
        if num_taken > room:
            break
        spared = num_prompts * (total - num_taken)
        if total - num_taken <= room - num_prompts * decode_width and spared > best_spared:
            best, best_spared = num_taken, spared
    return best
