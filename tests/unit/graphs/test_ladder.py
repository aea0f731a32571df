import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.graphs.ladder import chosen_sizes, context_lengths, ladder


@given(st.integers(1, 20_000), st.data())
def test_padding_above_16_is_at_most_an_eighth(limit: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, limit))
    size = min(size for size in ladder(limit) if size >= count)
    if count > 16:
        assert size <= 1.125 * count
    else:
        assert size < 2 * count or size == count


@given(st.integers(1, 20_000))
def test_a_ladder_ascends_to_its_limit(limit: int) -> None:
    sizes = ladder(limit)
    assert sizes[-1] == limit
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] >= 1


def test_a_ladder_is_short() -> None:
    assert len(ladder(512)) <= 34
    assert ladder(1) == (1,)
    assert ladder(6) == (1, 2, 4, 6)
    assert ladder(37) == (1, 2, 4, 8, 16, 18, 21, 24, 28, 32, 33, 37)
    assert ladder(256)[10:] == (33, 38, 43, 49, 56, 64, 69, 78, 88, 100, 113, 128, 140, 158, 178, 201, 227, 256)


def test_the_users_sizes_replace_the_ladder() -> None:
    assert chosen_sizes((32, 8, 8, 64), 32) == (8, 32)
    assert chosen_sizes(None, 2) == (1, 2)


@pytest.mark.parametrize(("longest", "expected"), [(1, (1,)), (2, (1, 2)), (100, (1, 2, 4, 8, 16, 32, 64, 100))])
def test_backends_are_asked_at_powers_of_two_and_the_longest(longest: int, expected: tuple[int, ...]) -> None:
    assert context_lengths(longest) == expected
