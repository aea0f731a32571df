"""Answers that part: where, and whether the two tokens tie there."""

import pytest

from legato.eval.answers import Answer, speed_of
from legato.eval.differences import Departure, departures, judged
from legato.flow.step_output import TokenLogprobs


def position(**logprobs: float) -> TokenLogprobs:
    """Scores by token, the best first: ``t7=-0.5`` is token 7."""
    scores = {int(name[1:]): value for name, value in logprobs.items()}
    best = next(iter(scores))
    return TokenLogprobs(
        token_id=best, logprob=scores[best], rank=1, top_ids=tuple(scores), top_logprobs=tuple(scores.values())
    )


def test_the_first_difference_of_each_answer_is_found() -> None:
    expected = [(1, 2, 3), (4, 5), (6,), (7,)]
    given = [(1, 2, 3), (4, 9), (6, 8), ()]
    assert departures(expected, given) == [
        Departure(1, 1, 5, 9),
        Departure(2, 1, None, 8),
        Departure(3, 0, 7, None),
    ]


@pytest.mark.parametrize(
    ("expected", "given", "scores", "gap", "near_tie"),
    [
        (5, 9, {"t5": -0.7, "t9": -0.7001}, 0.0001, True),
        (5, 9, {"t5": -0.7, "t9": -1.7}, 1.0, False),
        (5, 9, {"t1": -0.1, "t5": -4.0, "t9": -4.0001}, 0.0001, False),
        (5, 9, {"t5": -0.7, "t6": -0.8}, None, False),
        (5, None, {"t5": -0.7, "t6": -0.8}, None, False),
    ],
    ids=["alike", "apart", "alike but both bad", "not among the best", "ended"],
)
def test_only_tokens_beside_the_best_one_tie(
    expected: int, given: int | None, scores: dict[str, float], gap: float | None, near_tie: bool
) -> None:
    found = judged(Departure(0, 1, expected, given), position(**scores), dtype="float32", vocab_size=1000)
    assert found.gap == (None if gap is None else pytest.approx(gap))
    assert found.near_tie is near_tie


def test_a_wider_data_type_ties_less() -> None:
    scores = position(t5=-0.7, t9=-0.8)
    tie = {dtype: judged(Departure(0, 0, 5, 9), scores, dtype=dtype, vocab_size=1000).near_tie for dtype in DTYPES}
    assert tie == {"float32": False, "bfloat16": True}


DTYPES = ("float32", "bfloat16")


def test_speed_counts_prompts_apart_from_answers() -> None:
    answers = [
        Answer(text="", num_prompt_tokens=30, num_output_tokens=10, latency_s=1.0, ms_per_token=5.0),
        Answer(text="", num_prompt_tokens=50, num_output_tokens=1, latency_s=3.0),
    ]
    speed = speed_of(answers, 2.0)
    assert (speed.questions_per_s, speed.mean_latency_s, speed.tpot_ms) == (1.0, 2.0, 5.0)
    assert (speed.output_tok_per_s, speed.total_tok_per_s) == (5.5, 45.5)
