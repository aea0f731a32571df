"""When two tokens tie. Owns how far two computations of the same scores may be apart, by data type; pure.

Where shapes and kernels are the same, nothing may differ by a bit. Where padding or the mode differs, other kernels
round in another order: values then agree within a share of the largest value, and two tokens closer than that may
change places.
"""

import math

from legato.flow.step_output import TokenLogprobs

RELATIVE_TOLERANCE: dict[str, float] = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Data type -> share of the largest value: about ten units in its last place, more where layers add up in float32."""
NEAR_TIE = 2.0
"""Two tokens tie if their scores are this many tolerances apart at most: each of them may move by one."""


def tolerance(dtype: str, largest: float) -> float:
    """Return the allowed difference between values of which the largest is ``largest``."""
    return RELATIVE_TOLERANCE[dtype] * largest


def scores(position: TokenLogprobs) -> dict[int, float]:
    """Return the log-probability of each token that is named at a position."""
    return dict(zip(position.top_ids, position.top_logprobs, strict=True)) | {position.token_id: position.logprob}


def scale(position: TokenLogprobs, vocab_size: int) -> float:
    """Return how far the best tokens stand out: the logits' own scale, whatever the model's."""
    return max(abs(logprob + math.log(vocab_size)) for logprob in scores(position).values())


def least(position: TokenLogprobs) -> float:
    """Return what no token scores above that is not named at ``position``; infinite where no best tokens are."""
    return min(position.top_logprobs, default=math.inf)


def gap(position: TokenLogprobs, token_id: int, *, unnamed: float = -math.inf) -> float:
    """Return by how much the chosen token beats ``token_id``: 0 for itself; ``unnamed``: a score of one not named."""
    named = scores(position)
    return named[position.token_id] - named.get(token_id, unnamed)
