"""A replayed step equals the eager one, and padding is as if it were not there."""

from itertools import count
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_engine import VOCAB_SIZE, build, request, write_config

from legato.engine.core import EngineCore
from legato.flow.request import Request

NUMBERS = count()
LOADS = st.lists(
    st.tuples(
        st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=12),
        st.integers(1, 6),
        st.sampled_from([{}, {"temperature": 1.0}, {"temperature": 0.9, "top_k": 5}, {"logit_bias": ((3, 2.0),)}]),
    ),
    min_size=1,
    max_size=6,
)
PROPERTY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def eager(folder: Path) -> EngineCore:
    return build(folder, graph_policy="none", prefix_caching=False)


@pytest.fixture(scope="module", params=["full", "full_and_piecewise", "full_decode_only"])
def replayed(folder: Path, request: pytest.FixtureRequest) -> EngineCore:
    return build(folder, graph_policy=request.param, prefix_caching=False, graph_sizes=(3, 4, 16, 32))


def requests_of(load) -> list[Request]:
    number = next(NUMBERS)
    return [
        request(f"{number}.{index}", prompt, max_tokens=max_tokens, seed=index, **params)
        for index, (prompt, max_tokens, params) in enumerate(load)
    ]


def poison(core: EngineCore) -> None:
    """Put into the null block and the null row what would show up anywhere it leaked to."""
    program = core._runner._program
    with torch.inference_mode():
        program.state.next_tokens[program.state.null_row] = VOCAB_SIZE - 1
        for cache in program.caches.values():
            cache.key[0].fill_(float("nan"))
            cache.value[0].fill_(float("nan"))


def step_and_read(core: EngineCore) -> tuple[list[tuple[int, ...]], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run a step; return the tokens of its updates, and logits, next inputs and lengths of its requests."""
    program = core._runner._program
    state = program.state
    before = state.next_tokens.clone(), state.num_computed.clone()
    tokens = [update.token_ids for update in core.step()]
    num_reqs = core.step_log.recent[-1].num_reqs
    rows = program.buffers.rows.device[:num_reqs]
    others = [row for row in range(state.null_row) if row not in rows.tolist()]
    assert torch.equal(before[0][others], state.next_tokens[others]), "a row that is not in the batch was written to"
    assert torch.equal(before[1][others], state.num_computed[others])
    return tokens, program.buffers.logits[:num_reqs].clone(), state.next_tokens[rows], state.num_computed[rows]


def step_together(first: EngineCore, second: EngineCore, load, *, poison_second: bool) -> None:
    for core in (first, second):
        for one in requests_of(load):
            core.add(one)
    while first.has_work:
        if poison_second:
            poison(second)
        tokens, logits, next_tokens, num_computed = step_and_read(first)
        other = step_and_read(second)
        assert tokens == other[0]
        torch.testing.assert_close(logits, other[1], atol=1e-4, rtol=1e-4)
        assert torch.equal(next_tokens, other[2])
        assert torch.equal(num_computed, other[3])
    assert not second.has_work


@PROPERTY
@given(LOADS)
def test_a_replayed_step_equals_the_eager_one(eager: EngineCore, replayed: EngineCore, load) -> None:
    step_together(eager, replayed, load, poison_second=False)


@PROPERTY
@given(LOADS)
def test_a_padded_row_never_changes_a_real_one(eager: EngineCore, replayed: EngineCore, load) -> None:
    """The property is of padding that is poisoned: not-a-number in the null block, garbage in the null row."""
    step_together(eager, replayed, load, poison_second=True)
    program = replayed._runner._program
    assert program.state.num_computed[program.state.null_row] == 0, "the null row never advances"
    assert not program.state.block_table[program.state.null_row].any()


def test_most_steps_were_replays_with_padding(replayed: EngineCore) -> None:
    for one in requests_of([([1, 2, 3], 4, {}), ([4], 4, {})]):
        replayed.add(one)
    before = replayed.step_log.padding_tokens, replayed.step_log.replays.total()
    while replayed.has_work:
        replayed.step()
    assert replayed.step_log.padding_tokens > before[0]
    assert replayed.step_log.replays.total() > before[1]
