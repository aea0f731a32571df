"""Made-up batches: within their limits, and unlike each other where a frozen value must show."""

import pytest

from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticBatch, SyntheticLimits, make_batch

LIMITS = SyntheticLimits(max_num_seqs=8, max_model_len=64, num_blocks=41, block_size=4, vocab_size=50)
SHAPES = [
    StepShape(num_tokens=tokens, num_reqs=reqs, query_len=width, max_query_len=width or tokens, key_ints=())
    for tokens, reqs, width in [(1, 1, 1), (2, 2, 1), (8, 8, 1), (8, 4, 2), (1, 8, None), (7, 8, None), (32, 8, None)]
]


def longest(batch: SyntheticBatch) -> int:
    return max(sum(pair) for pair in zip(batch.computed, batch.query_lens, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_longest_sequence_of_odd_seeds_is_not_that_of_even_ones(shape: StepShape) -> None:
    """A graph that is captured over one and proven by the other cannot hide a length."""
    lengths = [{longest(make_batch(shape, LIMITS, seed)) for seed in seeds} for seeds in ((1, 3), (2, 4))]
    assert lengths[0].isdisjoint(lengths[1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_every_request_has_blocks_of_its_own_for_all_its_tokens(shape: StepShape, seed: int) -> None:
    batch = make_batch(shape, LIMITS, seed)
    for blocks, computed, query_len in zip(batch.blocks, batch.computed, batch.query_lens, strict=True):
        assert computed + query_len <= LIMITS.max_model_len
        assert (len(blocks) - 1) * LIMITS.block_size < computed + query_len <= len(blocks) * LIMITS.block_size
    used = [block for blocks in batch.blocks for block in blocks]
    assert len(set(used)) == len(used)
    assert 1 <= min(used) <= max(used) < LIMITS.num_blocks
    assert len(batch.token_ids) == sum(batch.query_lens) <= shape.num_tokens
    assert len(set(batch.rows)) == len(batch.rows) <= shape.num_reqs
