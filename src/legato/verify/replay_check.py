"""One graph, replayed on the engine's own path, against an eager step of the same requests. Owns that comparison.

Planner, runner and sampler are those that serve. The eager step has no padding and the replay has poisoned padding, so
that kernels may differ by rounding and by nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.flow.sampler_variant import variant_of
from legato.flow.scheduled_batch import Admission, BlockAppend, ScheduledBatch, ScheduledRequest
from legato.graphs.captured import GraphStore
from legato.graphs.catalog import Catalog
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, GraphPolicy, SamplerVariant
from legato.plan.planner import Planner
from legato.runner.canary import Canary
from legato.runner.graph_capture import DroppedKey, shape_of
from legato.runner.synthetic import SyntheticBatch, make_batch
from legato.sampling.near_ties import NEAR_TIE, tolerance
from legato.verify.layer_probe import LayerProbe, first_difference
from legato.verify.reachability import params_for
from legato.verify.tolerance import row_differences

_SEED = 2
"""Of the made-up batch; not the one that the engine's own canary proves with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """How far a replay is from the eager step."""

    max_logit_difference: float
    failed_request: int | None
    """First request of the batch that is beyond the tolerance."""
    detail: str


@dataclass(frozen=True, slots=True)
class _Ran:
    logits: torch.Tensor  # [num_reqs, vocab_size]
    token_ids: tuple[int, ...]  # [num_reqs]


class ReplayCheck:
    """Checks one key of an engine that serves nobody; to be used in inference mode."""

    def __init__(self, core: EngineCore, key: GraphKey) -> None:
        runner = core.runner
        self._core = core
        self._key = key
        shape = shape_of(key, runner.limits.max_num_seqs)
        made_up = make_batch(shape, runner.limits, _SEED)
        self._canary = Canary(runner.program, key, shape, made_up)
        self._batch = _as_scheduled(made_up, key)
        # The graph stands for its own key integers, whatever this batch's would be.
        self._planner = Planner(limits=core.planner.limits, key_ints=lambda *_: key.key_ints)
        self.query_start_loc = (0, *accumulate(made_up.query_lens))

    def run(self) -> ReplayResult:
        """Compare logits of each request, and tokens where they are greedy."""
        expected, given = self._run(None), self._run(self._key)
        apart = row_differences(expected.logits, given.logits)
        allowed = tolerance(self._core.config.dtype, expected.logits.abs().max().item())
        most = apart.max().item()
        beyond = (apart > allowed).nonzero()
        if len(beyond):
            detail = f"logits are up to {most:.3g} apart, {allowed:.3g} is allowed"
            return ReplayResult(max_logit_difference=most, failed_request=int(beyond[0]), detail=detail)
        return ReplayResult(
            max_logit_difference=most,
            failed_request=self._other_token(expected, given, allowed),
            detail="another greedy token, and the two do not tie",
        )

    def first_layer(self, probe: LayerProbe) -> tuple[str, int] | None:
        """Return the first layer and token where the two differ, from a second capture that shows its layers."""
        runner, num_tokens = self._core.runner, self.query_start_loc[-1]
        store = GraphStore(runner.epoch)
        with probe.installed():
            if isinstance(runner.capturer(store).prove(self._key), DroppedKey):
                return None
            self._run(None)
            expected = probe.outputs(num_tokens)
            with _served_by(self._core, store):
                self._run(self._key)
            return first_difference(expected, probe.outputs(num_tokens), self._core.config.dtype)

    def _run(self, key: GraphKey | None) -> _Ran:
        """Run the batch on ``key``, or eagerly, and return what it left."""
        runner = self._core.runner
        catalog = _only(key, runner.catalog)
        plan = self._planner.plan(self._batch, catalog)
        assert plan.key == key, f"{self._batch} does not fit in {key}"
        self._canary.install(poisoned=key is not None)
        output = runner.collect(runner.launch(plan, self._batch))
        logits = runner.program.buffers.logits[: len(self._batch.requests)].clone()
        return _Ran(logits, tuple(request.token_ids[0] for request in output.requests))

    def _other_token(self, expected: _Ran, given: _Ran, allowed: float) -> int | None:
        """Return the first request with another token that does not tie; sampled tokens are not compared."""
        if variant_of(params_for(self._key), 1) is not SamplerVariant.GREEDY:
            return None
        for index, (one, other) in enumerate(zip(expected.token_ids, given.token_ids, strict=True)):
            gap = (expected.logits[index, one] - expected.logits[index, other]).item()
            if gap > NEAR_TIE * allowed:
                return index
        return None


def _only(key: GraphKey | None, catalog: Catalog) -> Catalog:
    """Return a catalog of one key, or of none, that lets every class of batch have it."""
    policy = catalog.policy
    uniform = dict.fromkeys(policy.uniform, GraphMode.FULL)
    policy = replace(policy, requested=GraphPolicy.FULL, mixed=GraphMode.FULL, uniform=uniform)
    return Catalog(policy=policy, keys=() if key is None else (key,))


@contextmanager
def _served_by(core: EngineCore, store: GraphStore) -> Iterator[Mapping[GraphKey, object]]:
    """Replay the graphs of ``store`` instead of the engine's own."""
    own, core.runner.graphs = core.runner.graphs, store
    try:
        yield store.graphs
    finally:
        core.runner.graphs = own


def _as_scheduled(batch: SyntheticBatch, key: GraphKey) -> ScheduledBatch:
    """Return the made-up batch as the scheduler would hand it over, every request just admitted."""
    decodes = key.query_len is not None
    starts = (0, *accumulate(batch.query_lens))
    token_ids = [batch.token_ids[starts[i] : starts[i + 1]] for i in range(len(batch.rows))]
    requests = tuple(
        ScheduledRequest(
            request_id=f"made-up-{row}",
            row=row,
            num_computed_tokens=computed,
            token_ids=ids,
            is_decode=decodes,
            samples=True,
            num_output_tokens=int(decodes),
            sampler=variant_of(params_for(key), int(decodes)),
            params=params_for(key),
        )
        for row, computed, ids in zip(batch.rows, batch.computed, token_ids, strict=True)
    )
    admissions = tuple(
        Admission(row=one.row, request=_request(one), output_token_ids=(), num_computed_tokens=one.num_computed_tokens)
        for one in requests
    )
    appends = tuple(
        BlockAppend(row=row, start=0, block_ids=blocks) for row, blocks in zip(batch.rows, batch.blocks, strict=True)
    )
    return ScheduledBatch(step=1, requests=requests, released_rows=(), admissions=admissions, block_appends=appends)


def _request(scheduled: ScheduledRequest) -> Request:
    return Request(
        request_id=scheduled.request_id,
        prompt_token_ids=scheduled.token_ids,
        params=scheduled.params,
        seed=scheduled.row,
        stop_token_ids=frozenset(),
        max_tokens=1,
        arrival=0.0,
    )
