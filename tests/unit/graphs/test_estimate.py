"""All graphs' bytes from those of a few."""

from hypothesis import given
from hypothesis import strategies as st

from legato.graphs.estimate import estimate_bytes, sample_keys
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant

SIZES = (1, 2, 4, 8, 16, 24, 64)


def full(num_tokens: int, sampler: SamplerVariant | None = None) -> GraphKey:
    return GraphKey(mode=GraphMode.FULL, num_tokens=num_tokens, num_reqs=num_tokens, query_len=1, sampler=sampler)


def piecewise(num_tokens: int) -> GraphKey:
    return GraphKey(mode=GraphMode.PIECEWISE, num_tokens=num_tokens)


KEYS = [
    *map(full, SIZES),
    *(full(size, SamplerVariant.GREEDY) for size in SIZES),
    *map(piecewise, (8, 100, 512)),
]


def test_the_ends_of_each_kind_are_sampled_the_largest_first() -> None:
    assert sample_keys(KEYS) == [
        piecewise(512),
        full(64),
        full(64, SamplerVariant.GREEDY),
        piecewise(8),
        full(1),
        full(1, SamplerVariant.GREEDY),
    ]


def test_a_kind_of_one_size_is_sampled_once() -> None:
    assert sample_keys([full(4), piecewise(4)]) == [full(4), piecewise(4)]


@given(fixed=st.integers(0, 10**6), per_token=st.integers(0, 10**5))
def test_bytes_that_grow_with_tokens_are_estimated_exactly(fixed: int, per_token: int) -> None:
    def num_bytes(key: GraphKey) -> int:
        factor = 3 if key.mode is GraphMode.PIECEWISE else 1
        return factor * (fixed + per_token * key.num_tokens)

    sampled = {key: num_bytes(key) for key in sample_keys(KEYS)}
    assert estimate_bytes(KEYS, sampled) == sum(map(num_bytes, KEYS))


def test_a_kind_that_could_not_be_sampled_counts_nothing_and_one_end_stands_for_its_kind() -> None:
    assert estimate_bytes(KEYS, {piecewise(8): 5}) == 15
    assert estimate_bytes(KEYS, {}) == 0


def test_bytes_that_fall_with_tokens_do_not_become_negative() -> None:
    assert estimate_bytes([full(1), full(2), full(1000)], {full(1): 1, full(2): 0}) == 0
