"""A made-up request stands where the model itself would be after the same tokens."""

import pytest
import torch
from tiny_engine import build, request, run, write_config

from legato.engine.core import EngineCore
from legato.flow.sampling_params import SamplingParams
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticBatch, make_batch
from legato.verify.contexts import ComputedContexts
from legato.verify.made_up import as_scheduled, only

SEQUENCES = [[3, 1, 4, 1, 5, 9, 2, 6], [7, 7, 9], [11]]
BATCH = SyntheticBatch(
    rows=(2, 0, 3, 1),
    query_lens=(1, 3, 2, 1),
    computed=(7, 5, 0, 8),
    blocks=((9, 4), (1, 12), (5,), (30, 2, 17)),
    token_ids=(0,) * 7,
)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> EngineCore:
    """Chunks of 7 tokens, so that a context of 8 takes two."""
    folder = write_config(tmp_path_factory.mktemp("model"), initializer_range=0.5)
    return build(folder, graph_policy="none", max_num_batched_tokens=7)


def whole(index: int) -> list[int]:
    """Tokens of the request at ``index``, those of the step included."""
    sequence = SEQUENCES[index % len(SEQUENCES)]
    length = BATCH.computed[index] + BATCH.query_lens[index]
    return [sequence[position % len(sequence)] for position in range(length)]


@torch.inference_mode()
def test_a_request_goes_on_with_the_tokens_and_the_cache_that_its_sequence_has(core: EngineCore) -> None:
    contexts = ComputedContexts(core, SEQUENCES)
    batch = contexts.continued(BATCH)
    first = 0
    for index, query_len in enumerate(BATCH.query_lens):
        assert list(batch.token_ids[first : first + query_len]) == whole(index)[-query_len:]
        first += query_len
    contexts.fill(contexts.places(batch))
    scheduled = as_scheduled(batch, SamplingParams(temperature=0.0), decodes=(False,) * len(batch.rows))
    runner = core.runner
    output = runner.collect(runner.launch(core.planner.plan(scheduled, only(None, runner.graphs.catalog)), scheduled))
    got = [request.token_ids[0] for request in output.requests]
    core.reset_prefix_cache()
    for index, token in enumerate(got):
        assert run(core, [request("same", whole(index), max_tokens=1)])["same"].token_ids == [token]


@torch.inference_mode()
def test_what_the_step_itself_must_store_is_not_there_before(core: EngineCore) -> None:
    contexts = ComputedContexts(core, SEQUENCES)
    caches = core.runner.program.caches
    for cache in caches.values():
        cache.key.fill_(7.0)
        cache.value.fill_(7.0)
    contexts.fill(contexts.places(contexts.continued(BATCH)))
    for cache in caches.values():
        for blocks, computed in zip(BATCH.blocks, BATCH.computed, strict=True):
            for stored in (cache.key, cache.value):
                rows = stored[list(blocks)].flatten(0, 1)
                assert not (rows[:computed] == 7.0).any()
                assert (rows[computed:] == 7.0).all()


@torch.inference_mode()
def test_the_longest_context_of_a_made_up_batch_is_there(core: EngineCore) -> None:
    contexts = ComputedContexts(core, SEQUENCES)
    longest = 0
    for num_reqs in range(1, 5):
        shape = StepShape(num_tokens=num_reqs, num_reqs=num_reqs, query_len=1, max_query_len=1)
        for seed in range(4):
            batch = contexts.continued(make_batch(shape, core.runner.graphs.limits, seed))
            contexts.fill(contexts.places(batch))  # out of range, it raises
            longest = max(longest, *batch.computed)
    assert longest == 2 * core.runner.graphs.limits.block_size
