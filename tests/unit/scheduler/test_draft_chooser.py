"""The number of drafts that is chosen, against the best one that a fixed choice could have been."""

from itertools import pairwise

import numpy as np
import pytest

from legato.config.speculative import draft_numbers, rates_of_length
from legato.scheduler.acceptance_estimate import AcceptanceEstimate, expected_tokens
from legato.scheduler.draft_chooser import DraftChooser
from legato.scheduler.round_costs import RoundCosts

MAX_DRAFTS = 5
SIZES = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = 2500


def table(*, draft_ms: float, token_ms: float, max_drafts: int = MAX_DRAFTS) -> RoundCosts:
    """Costs as a GPU has them: weights are read once a round, each token adds a little, each draft a pass."""
    numbers = draft_numbers(max_drafts)

    def ms(num_reqs: int, num_drafts: int) -> float:
        drafting = (draft_ms * num_drafts + 0.3 * draft_ms) * (num_drafts > 0)
        return 4.0 + token_ms * num_reqs * (1 + num_drafts) + drafting

    return RoundCosts(sizes=SIZES, num_drafts=numbers, ms=tuple(tuple(ms(n, k) for k in numbers) for n in SIZES))


TABLES = {
    "a head": table(draft_ms=0.2, token_ms=0.015),
    "a smaller model": table(draft_ms=0.9, token_ms=0.015),
    "lookup on a busy device": table(draft_ms=0.02, token_ms=0.08),
}


def speed(costs: RoundCosts, num_reqs: int, rates: tuple[float, ...], num_drafts: int) -> float:
    return expected_tokens(rates, num_drafts) / costs.at(num_reqs)[costs.num_drafts.index(num_drafts)]


def simulate(
    chooser: DraftChooser, num_reqs: int, rates: tuple[float, ...], rounds: int, seed: int = 0
) -> tuple[float, list[int]]:
    """Return tokens per millisecond and the choices; a step's result is known when the step after next is formed."""
    random = np.random.default_rng(seed)
    tokens = spent = 0.0
    choices: list[int] = []
    behind: list[tuple[int, list[int], int]] = []
    for _ in range(rounds):
        made = choices[-1] if choices else 0
        k = chooser.choose(num_reqs, num_reqs)
        choices.append(k)
        stood = [num_reqs]
        for place in range(k):  # drafts that nobody made fall
            stood.append(int(random.binomial(stood[-1], rates[place] if place < made else 0.0)))
        # In the mean, so that luck does not decide which choice was better.
        tokens += expected_tokens(rates, min(k, made))
        spent += chooser.costs.at(num_reqs)[chooser.costs.num_drafts.index(k)]
        behind.append((k, stood, made))
        if len(behind) == 2:
            drafts, counts, num_made = behind.pop(0)
            chooser.observe(counts, num_made=num_made)
            chooser.account(num_reqs, drafts, sum(counts))
    return tokens / spent, choices


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("length", [1.0, 1.3, 1.7, 2.2, 2.8, 3.4, 4.0])
@pytest.mark.parametrize("num_reqs", [1, 6, 20, 64])
def test_the_choice_is_within_two_percent_of_the_best_fixed_number(name: str, length: float, num_reqs: int) -> None:
    costs, rates = TABLES[name], rates_of_length(length, MAX_DRAFTS)
    best = max(speed(costs, num_reqs, rates, k) for k in costs.num_drafts)
    reached, _ = simulate(DraftChooser(costs), num_reqs, rates, ROUNDS)
    assert reached > 0.98 * best


@pytest.mark.parametrize(
    "rates", [(0.9, 0.6, 0.3, 0.1, 0.05), (0.5, 0.95, 0.95, 0.95, 0.95), (0.3, 0.9, 0.1, 0.9, 0.9)]
)
@pytest.mark.parametrize("num_reqs", [1, 8, 64])
def test_acceptance_that_differs_by_place_is_found_too(rates: tuple[float, ...], num_reqs: int) -> None:
    costs = TABLES["a head"]
    best = max(speed(costs, num_reqs, rates, k) for k in costs.num_drafts)
    reached, _ = simulate(DraftChooser(costs), num_reqs, rates, ROUNDS)
    assert reached > 0.98 * best


def test_the_choice_follows_a_text_that_becomes_predictable_and_back() -> None:
    chooser = DraftChooser(TABLES["a head"])
    poor, good = rates_of_length(1.05, MAX_DRAFTS), rates_of_length(4.0, MAX_DRAFTS)
    _, first = simulate(chooser, 8, poor, 3000)
    _, second = simulate(chooser, 8, good, 8000, seed=1)
    _, third = simulate(chooser, 8, poor, 3000, seed=2)
    assert first[-500:].count(0) > 480
    assert second[-500:].count(0) == 0 and min(second[-500:]) >= 3
    assert third[-500:].count(0) > 480


def test_near_equals_do_not_make_the_choice_jump() -> None:
    rates = rates_of_length(2.5, MAX_DRAFTS)
    _, choices = simulate(DraftChooser(TABLES["a head"]), 1, rates, ROUNDS)
    late = choices[-2000:]
    assert sum(one != other for one, other in pairwise(late)) < 40


def test_drafts_that_may_not_stand_are_not_fed() -> None:
    """Penalties depend on every token before: where all requests have some, drafts only cost."""
    chooser = DraftChooser(TABLES["a head"])
    assert chooser.choose(4, 4) > 0
    assert chooser.choose(4, 0) == 0


def test_a_step_without_decodes_keeps_the_choice() -> None:
    chooser = DraftChooser(TABLES["a head"])
    before = chooser.choose(2, 2)
    assert chooser.choose(0, 0) == before


def test_a_pinned_number_is_taken_whatever_it_costs() -> None:
    chooser = DraftChooser(TABLES["a smaller model"])
    chooser.pinned = 5
    assert chooser.choose(64, 64) == 5


def test_the_speed_up_is_what_tokens_cost_less_than_plain_ones() -> None:
    costs = TABLES["a head"]
    chooser, rates = DraftChooser(costs), rates_of_length(3.5, MAX_DRAFTS)
    assert chooser.speed_up is None
    reached, _ = simulate(chooser, 8, rates, 2000)
    assert chooser.speed_up == pytest.approx(reached / speed(costs, 8, rates, 0), rel=0.03)


def test_drafts_of_earlier_rounds_tell_nothing_of_acceptance() -> None:
    chooser = DraftChooser(TABLES["a head"])
    before = chooser.rates
    chooser.observe([8, 0, 0, 0], num_made=0)
    assert chooser.rates == before
    chooser.observe([8, 0, 0, 0], num_made=1)
    assert chooser.rates[0] < before[0]


def test_an_estimate_comes_to_the_rates_of_each_place() -> None:
    random, rates = np.random.default_rng(0), (0.8, 0.5, 0.9)
    estimate = AcceptanceEstimate(3)
    for _ in range(2000):
        stood = [8]
        for rate in rates:
            stood.append(int(random.binomial(stood[-1], rate)))
        estimate.observe(stood)
    assert estimate.rates() == pytest.approx(rates, abs=0.09)


def test_costs_between_two_sizes_are_in_proportion() -> None:
    costs = RoundCosts(sizes=(1, 4), num_drafts=(0, 2), ms=((1.0, 2.0), (4.0, 8.0)))
    assert costs.at(1) == (1.0, 2.0)
    assert costs.at(2) == pytest.approx((2.0, 4.0))
    assert costs.at(9) == (4.0, 8.0)


@pytest.mark.parametrize("most", range(1, 16))
def test_numbers_of_drafts_begin_with_none_and_end_with_the_most(most: int) -> None:
    numbers = draft_numbers(most)
    assert numbers[0] == 0 and numbers[-1] == most
    assert list(numbers) == sorted(set(numbers)) and len(numbers) <= 10


@pytest.mark.parametrize("length", [1.5, 3.0, 4.0])
def test_numbers_that_are_left_out_cost_little(length: float) -> None:
    """With 15 drafts at most, the best of those there are is within a hundredth of the best of all."""
    rates = rates_of_length(length, 15)
    costs = table(draft_ms=0.2, token_ms=0.015, max_drafts=15)

    def ms(k: int) -> float:
        return float(np.interp(k, costs.num_drafts, costs.at(8)))

    best = max(expected_tokens(rates, k) / ms(k) for k in range(16))
    assert max(speed(costs, 8, rates, k) for k in costs.num_drafts) > 0.99 * best


def test_what_is_forgotten_is_learnt_anew() -> None:
    chooser = DraftChooser(TABLES["a head"])
    at_first = chooser.rates
    simulate(chooser, 8, rates_of_length(1.05, MAX_DRAFTS), 300)
    assert chooser.rates != at_first
    chooser.forget()
    assert chooser.rates == at_first and chooser.speed_up is None
