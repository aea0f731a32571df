"""Which tokens a head can draft. Owns the choice, and how published checkpoints write it down."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVocabulary:
    """The target ids of all draft ids, in order."""

    target_ids: tuple[int, ...]
    coverage: float
    """Share of the answers' tokens that it holds."""


def choose_draft_vocabulary(answers: Iterable[Sequence[int]], size: int, vocab_size: int) -> DraftVocabulary:
    """Return the ``size`` tokens that ``answers`` use most; where these are fewer, the lowest ids besides.

    Tokenizers number their tokens by how common they are, so that low ids are the better guess.
    """
    counts = Counter(token_id for answer in answers for token_id in answer)
    ranked = sorted(range(vocab_size), key=lambda token_id: (-counts[token_id], token_id))
    chosen = sorted(ranked[:size])
    covered = sum(counts[token_id] for token_id in chosen)
    return DraftVocabulary(target_ids=tuple(chosen), coverage=covered / max(1, counts.total()))
