"""Prompts that need two steps are divided where the most waiting is spared."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.scheduler.divided_prompts import tokens_of_the_first_step
from legato.scheduler.graph_fit import GraphFit

ANY_LENGTH = GraphFit(least_tokens=1)


def waited(num_left: list[int], first: int) -> int:
    """Tokens that are computed until each prompt has its first token, summed, with a first step of so many."""
    total, done, waits = sum(num_left), 0, 0
    for length in num_left:
        done += length
        waits += first if done <= first else total
    return waits


@pytest.mark.parametrize(
    ("num_left", "room", "first"),
    [
        ([], 8, None),
        ([8], 8, None),
        ([9], 8, None),
        ([3, 3], 8, None),
        ([4, 4, 4], 9, 4),
        ([4, 4, 4], 8, 8),
        ([2, 2, 2, 2, 2, 2], 9, 6),
        ([1, 7, 7], 9, 8),
        ([1, 7, 7], 8, None),
        ([7, 3], 8, 7),
        ([2, 9], 8, None),
        ([9, 2], 8, None),
        ([6, 6, 6], 8, None),
    ],
)
def test_the_first_step_ends_with_a_prompt(num_left: list[int], room: int, first: int | None) -> None:
    assert tokens_of_the_first_step(num_left, room) == first


@given(num_left=st.lists(st.integers(1, 30), max_size=12), room=st.integers(1, 80))
def test_no_other_end_of_a_prompt_spares_more(num_left: list[int], room: int) -> None:
    total, first = sum(num_left), tokens_of_the_first_step(num_left, room)
    if not room < total <= 2 * room:
        assert first is None
        return
    ends = list(accumulate(num_left))
    ways = [end for num, end in enumerate(ends, start=1) if end <= room and total - end <= room - num]
    assert first is None if not ways else first in ways
    if first is not None:
        assert waited(num_left, first) == min(waited(num_left, way) for way in (*ways, room))


def test_three_prompts_that_need_two_steps_are_not_cut_and_the_first_has_its_token_sooner() -> None:
    engine = SimulatedEngine(max_num_batched_tokens=17, fit=ANY_LENGTH)
    engine.add(*(request(name, tuple(range(first, first + 8)), max_tokens=2) for first, name in enumerate("abc", 1)))
    assert engine.run_widths() == [[("a", 8)], [("a", 1), ("b", 8), ("c", 8)], [("b", 1), ("c", 1)]]
    for name, asked in engine.requests.items():
        assert engine.output(name) == output_alone(asked, engine.max_model_len)
    engine.check_at_rest()


def test_what_its_graph_has_room_for_joins_the_first_step() -> None:
    engine = SimulatedEngine(max_num_batched_tokens=16, fit=GraphFit(sizes=(4, 10, 16), least_tokens=4))
    engine.add(*(request(name, (1, 2, 3, 4, 5, 6), max_tokens=1) for name in "abc"))
    assert engine.run_widths()[0] == [("a", 6), ("b", 4)]


def test_steps_are_full_where_most_requests_decode() -> None:
    engine = SimulatedEngine(max_num_seqs=8, max_num_batched_tokens=16, fit=ANY_LENGTH)
    engine.add(*(request(name, (1,), max_tokens=9) for name in "abcd"))
    engine.step()
    engine.add(*(request(name, tuple(range(1, 8)), max_tokens=1) for name in "xyz"))
    assert [one.query_len for one in engine.step().requests] == [1, 1, 1, 1, 7, 5]


def test_only_those_that_a_row_is_free_for_count() -> None:
    engine = SimulatedEngine(max_num_seqs=2, max_num_batched_tokens=16, fit=ANY_LENGTH)
    engine.add(*(request(name, tuple(range(1, 9)), max_tokens=1) for name in "abc"))
    assert [one.query_len for one in engine.step().requests] == [8, 8]


def test_steps_that_are_short_anyway_are_full() -> None:
    engine = SimulatedEngine(max_num_batched_tokens=16, fit=GraphFit(least_tokens=17))
    engine.add(*(request(name, tuple(range(first, first + 8)), max_tokens=1) for first, name in enumerate("abc", 1)))
    assert engine.run_widths() == [[("a", 8), ("b", 8)], [("c", 8)]]
