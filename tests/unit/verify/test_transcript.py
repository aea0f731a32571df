"""When two engines' words count as the same, as a near tie, and as different."""

import math

from legato.flow.step_output import TokenLogprobs
from legato.observability.records import StepRecord
from legato.verify.transcript import Comparison, Output, compare

VOCAB_SIZE = 100
UNIFORM = -math.log(VOCAB_SIZE)


def record(step: int) -> StepRecord:
    return StepRecord(
        step=step,
        stage="target",
        requested="full",
        mode="full",
        reason=None,
        key=f"key {step}",
        num_reqs=1,
        num_tokens=1,
        num_tokens_padded=1,
        host_us=1.0,
        device_us=None,
    )


def position(scores: dict[int, float]) -> TokenLogprobs:
    """The best of some tokens; scores are above the uniform distribution's, so that the largest is the scale."""
    ordered = sorted(scores, key=lambda token: -scores[token])
    logprobs = tuple(UNIFORM + scores[token] for token in ordered)
    return TokenLogprobs(
        token_id=ordered[0], logprob=logprobs[0], rank=1, top_ids=tuple(ordered), top_logprobs=logprobs
    )


def output(*positions: dict[int, float], first_step: int = 1) -> Output:
    records = [record(first_step + index) for index in range(len(positions))]
    return Output(num_prompt_tokens=1, logprobs=[position(scores) for scores in positions], records=records)


def compared(expected: list[Output], given: list[Output], dtype: str = "bfloat16") -> Comparison:
    return compare(expected, given, dtype=dtype, vocab_size=VOCAB_SIZE)


def test_equal_outputs_are_compared_to_their_end() -> None:
    same = [output({1: 2.0, 2: 1.0}, {3: 2.0, 4: 1.0})]
    outcome = compared(same, same)
    assert (outcome.num_tokens, outcome.num_near_ties, outcome.departure) == (2, 0, None)
    assert outcome.max_logprob_difference == 0.0


def test_as_much_as_a_right_computation_was_off_is_allowed_on_the_other_side_too() -> None:
    expected, given = [output({1: 2.0, 2: 1.0})], [output({1: 2.0, 2: 0.7})]
    assert compared(expected, given).departure is not None
    seen = [compare(expected, given, dtype="bfloat16", vocab_size=VOCAB_SIZE, seen=seen) for seen in (0.14, 0.16)]
    assert [outcome.departure is None for outcome in seen] == [False, True]


def test_other_tokens_whose_scores_tie_are_a_near_tie_and_end_the_comparison() -> None:
    expected = [output({1: 2.0, 2: 1.95}, {3: 2.0})]
    given = [output({2: 2.0, 1: 1.95}, {9: 2.0})]
    outcome = compared(expected, given)
    assert (outcome.num_tokens, outcome.num_near_ties, outcome.departure) == (1, 1, None)


def test_the_same_scores_are_no_tie_in_a_data_type_that_rounds_less() -> None:
    expected, given = [output({1: 2.0, 2: 1.95})], [output({2: 2.0, 1: 1.95})]
    assert compared(expected, given, "float32").departure is not None


def test_a_token_that_is_not_among_the_best_departs() -> None:
    departure = compared([output({1: 2.0, 2: 1.0})], [output({7: 2.0, 1: 2.0, 2: 1.0})]).departure
    assert departure is not None
    assert "token 7 in place of 1" in departure.detail


def test_a_token_that_is_only_just_not_among_the_best_ties_with_them() -> None:
    expected, given = [output({1: 2.0, 2: 1.99})], [output({3: 2.01, 1: 2.0})]
    outcome = compared(expected, given)
    assert (outcome.num_near_ties, outcome.departure) == (1, None)
    assert 0.019 < outcome.max_logprob_difference < 0.021, "the third is at most 1.99 there"


def test_a_token_that_must_have_been_among_the_best_departs_though_the_best_is_the_same() -> None:
    departure = compared([output({1: 2.0, 2: 1.0})], [output({1: 2.0, 7: 1.9})]).departure
    assert departure is not None
    assert "0.9 apart" in departure.detail


def test_scores_that_are_apart_depart_though_the_token_is_the_same() -> None:
    departure = compared([output({1: 2.0}, {1: 2.0})], [output({1: 2.0}, {1: 1.8})]).departure
    assert departure is not None
    assert (departure.request, departure.position, departure.record.key) == (0, 1, "key 2")


def test_what_is_not_a_number_departs() -> None:
    assert compared([output({1: 2.0})], [output({1: math.nan})]).departure is not None


def test_the_departure_of_the_earliest_step_is_the_first() -> None:
    expected = [output({1: 2.0}, {1: 2.0}), output({1: 2.0}, {1: 2.0}, first_step=3)]
    given = [output({1: 2.0}, {1: 0.0}), output({1: 0.0}, {1: 0.0}, first_step=3)]
    departure = compared(expected, given).departure
    assert departure is not None
    assert (departure.request, departure.record.step) == (0, 2)
