"""Answers -> batches of one length each, in an order that the seed gives. Owns which positions of a text are learned.

A head at position ``t`` reads the token at ``t + 1`` and drafts the one at ``t + 2``; unrolled ``i`` steps further, the
one at ``t + 2 + i``. Positions are learned from the last token of the prompt on, as far as the drafted token is one of
the answer: that is where an engine drafts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LENGTH_MULTIPLE = 16
"""Lengths are rounded up to it: kernels like it, and there are fewer different shapes."""
_POOL_BATCHES = 32
"""Texts are sorted by length within so many batches' worth, so that padding is little and the order still random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A prompt with the target's answer to it."""

    token_ids: tuple[int, ...]
    num_prompt_tokens: int

    @property
    def num_learned(self) -> int:
        """Positions that the first step learns."""
        return max(0, len(self.token_ids) - self.num_prompt_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts of about the same length, as arrays of the host."""

    token_ids_np: np.ndarray  # [num_texts, length] int64, padded behind the text with 0
    positions_np: np.ndarray  # [num_rows] int64, where the head drafts from: text * length + position
    left_np: np.ndarray  # [num_rows] int64, how many rows of the same text follow


def make_batch(texts: Sequence[Text]) -> Batch:
    """Return ``texts`` as one batch. Row ``r`` learns at step ``i`` what row ``r + i`` learns at the first step."""
    longest = max(len(text.token_ids) for text in texts)
    length = padded_length(longest)
    token_ids_np = np.zeros((len(texts), length), dtype=np.int64)
    positions, left = [], []
    for index, text in enumerate(texts):
        token_ids_np[index, : len(text.token_ids)] = text.token_ids
        first = index * length + text.num_prompt_tokens - 1
        positions.append(np.arange(first, first + text.num_learned))
        left.append(np.arange(text.num_learned)[::-1])
    return Batch(token_ids_np=token_ids_np, positions_np=np.concatenate(positions), left_np=np.concatenate(left))


def epoch_batches(texts: Sequence[Text], batch_tokens: int, *, seed: int, epoch: int) -> list[tuple[int, ...]]:
    """Return the indices of ``texts`` batch by batch, each text once, in an order of its own for each epoch.

    A batch has at most ``batch_tokens`` tokens with padding, or one text.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(texts)).tolist()
    mean = sum(len(text.token_ids) for text in texts) / len(texts)
    pool_size = max(1, int(_POOL_BATCHES * batch_tokens / mean))
    batches = []
    for start in range(0, len(order), pool_size):
        batches += cut(order[start : start + pool_size], texts, batch_tokens)
    return [batches[index] for index in random.permutation(len(batches))]


def cut(order: Sequence[int], texts: Sequence[Text], batch_tokens: int) -> list[tuple[int, ...]]:
    """Return the indices ``order`` sorted by length and cut into batches of ``batch_tokens``."""
    batches: list[tuple[int, ...]] = []
    current: list[int] = []
    for index in sorted(order, key=lambda index: len(texts[index].token_ids)):
        if current and (len(current) + 1) * padded_length(len(texts[index].token_ids)) > batch_tokens:
            batches.append(tuple(current))
            current = []
        current.append(index)
    return [*batches, tuple(current)]


def padded_length(num_tokens: int) -> int:
    """Return the length that a text of ``num_tokens`` is padded to, if it is the longest of its batch."""
    return -(-num_tokens // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
