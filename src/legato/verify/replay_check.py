"""One graph, replayed on the engine's own path, against two eager steps of the same requests. Owns those comparisons.

Planner, runner and sampler are those that serve. The replay has poisoned padding. With the eager step of its own padded
shape it shares every kernel, attention between segments included, which has the batch's own sizes in both: the two are
equal to the bit. With the eager step that has no padding it shares the requests alone: other kernels may differ by
rounding, over contexts that the model itself computed, and by nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.engine.core import EngineCore
from legato.flow.execution_plan import ExecutionPlan
from legato.flow.sampler_variant import variant_of
from legato.graphs.captured import GraphStore
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant, Stage
from legato.runner.canary import Canary, difference
from legato.runner.graph_capture import DroppedKey
from legato.runner.round_buffers import RoundBuffers
from legato.runner.step_shape import StepShape, graph_shape, own_shape
from legato.runner.synthetic import SyntheticBatch, make_batch, verifying
from legato.sampling.near_ties import NEAR_TIE, tolerance
from legato.verify.contexts import ComputedContexts
from legato.verify.layer_probe import LayerProbe, first_difference
from legato.verify.made_up import as_scheduled, only
from legato.verify.reachability import drafts_of, params_for
from legato.verify.tolerance import row_differences

_SEED = 2
"""Of the made-up batch; not the one that the engine's own canary proves with."""
_ROW_STATE = ("next_tokens", "num_computed", "drafts")
"""What a step leaves for the next one: a graph without a sampler leaves that to what follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """How far a replay is from the eager steps."""

    max_logit_difference: float
    """From the step without padding."""
    detail: str | None
    """What is wrong; None: nothing."""
    place: tuple[str, int] | None
    """(what differs, first token of the step that is affected)."""
    same_shape: bool
    """Whether it already differs from the eager step of the same shape."""


@dataclass(frozen=True, slots=True)
class _Ran:
    outputs: Mapping[str, torch.Tensor]
    logits: torch.Tensor  # [num_reqs, vocab_size]
    token_ids: tuple[int, ...]  # [num_reqs]


class ReplayCheck:
    """Checks one key of an engine that serves nobody; to be used in inference mode."""

    def __init__(self, core: EngineCore, key: GraphKey, contexts: ComputedContexts) -> None:
        runner = core.runner
        self._core = core
        self._key = key
        self._contexts = contexts
        shape = graph_shape(key, runner.graphs.limits.max_num_seqs)
        self._made_up = contexts.continued(make_batch(shape, runner.graphs.limits, _SEED))
        self._places = contexts.places(self._made_up)
        buffers = runner.program.buffers
        width = buffers.sampled.shape[1] if isinstance(buffers, RoundBuffers) else 0
        decodes = verifying(self._made_up, uniform=key.query_len is not None, width=width)
        self._batch = as_scheduled(self._made_up, params_for(key), decodes=decodes, num_drafts=drafts_of(key))
        self._sampler = variant_of(params_for(key), 1)
        # The graph stands for its own key integers, whatever this batch's would be.
        self._planner = replace(core.planner, key_ints=lambda *_: key.key_ints)
        self._is_part = key.stage in (Stage.EXTEND, Stage.DRAFT)
        """Whether the graph is replayed behind a target, which the eager step of its own shape does not run."""
        self._starts = (0, *accumulate(self._made_up.query_lens))
        self._own_shape = self._planned_shape()
        self._canary = Canary(runner.program, key, shape, self._made_up, self._own_shape)
        if key.stage is Stage.ROUND:
            made_up = self._with_drafts_that_stand(decodes)
            self._canary = Canary(runner.program, key, shape, made_up, self._own_shape)

    def _with_drafts_that_stand(self, decodes: Sequence[bool]) -> SyntheticBatch:
        """Return the made-up batch with what the target samples as first draft of every second request."""
        sampled, token_ids = self._run(None).token_ids, list(self._made_up.token_ids)
        for index in range(0, len(sampled), 2):
            if decodes[index] and self._made_up.query_lens[index] > 1:
                token_ids[self._starts[index] + 1] = sampled[index]
        return replace(self._made_up, token_ids=tuple(token_ids))

    def run(self, *, without_padding: bool) -> ReplayResult:
        """Compare results to the bit with the eager step of the same shape.

        Then, where ``without_padding``, logits of each request, and tokens if greedy, with the step that has none. No
        graph takes part in how those two eager steps differ: once for a key is enough, whatever engine it is of.
        """
        expected = self._run(None) if without_padding else None
        given = self._run(self._key)
        same_shape = given.outputs if self._is_part else self._run_padded()
        wrong = difference(same_shape, given.outputs)
        if wrong is not None:
            name, row = first_difference(same_shape, given.outputs, None) or ("logits", 0)
            token = row if name in ("hidden", "auxiliary", "extended") else self._last_token(row)
            detail = f"{wrong}; shape and kernels are the same"
            return ReplayResult(max_logit_difference=0.0, detail=detail, place=(name, token), same_shape=True)
        if expected is None:
            return ReplayResult(max_logit_difference=0.0, detail=None, place=None, same_shape=False)
        return self._beyond_rounding(expected, given)

    def first_layer(self, probe: LayerProbe, *, same_shape: bool) -> tuple[str, int] | None:
        """Return the first layer and token where the two differ.

        ``same_shape``: a second capture shows the replay's layers; otherwise the eager step of its shape does.
        """
        num_tokens = self._starts[-1]
        with probe.installed():
            if not same_shape:
                self._run(None)
                expected = probe.outputs(num_tokens)
                self._run_padded()
                return first_difference(expected, probe.outputs(num_tokens), self._core.config.dtype)
            store = GraphStore(self._core.runner.graphs.epoch)
            if isinstance(self._core.runner.graphs.capturer(store).prove(self._key), DroppedKey):
                return None
            self._run_padded()
            expected = probe.outputs(num_tokens)
            with _served_by(self._core, store):
                self._run(self._key)
            return first_difference(expected, probe.outputs(num_tokens), None)

    def _beyond_rounding(self, expected: _Ran, given: _Ran) -> ReplayResult:
        """Compare on the device, and fetch three figures per request."""
        logits = expected.logits
        token_ids = upload(np.array([expected.token_ids, given.token_ids]), logits.device)
        chosen, other = logits.gather(1, token_ids.T).float().unbind(1)
        largest = logits.abs().amax(dim=1).float()
        apart, gap, largest = torch.stack([row_differences(logits, given.logits), chosen - other, largest]).cpu()
        most = apart.max().item()
        # Either of the two may be a tolerance away from what exact arithmetic gives.
        allowed = NEAR_TIE * tolerance(self._core.config.dtype, largest.max().item())
        # Sampled tokens are not compared.
        elsewhere = gap > allowed if self._sampler is SamplerVariant.GREEDY else torch.zeros_like(gap)
        detail, place = None, None
        if most > allowed:
            detail = f"logits are up to {most:.3g} apart, {allowed:.3g} is allowed"
            place = ("logits", self._last_token(int((apart > allowed).nonzero()[0])))
        elif elsewhere.any():
            detail = "another greedy token, and the two do not tie"
            place = ("logits", self._last_token(int(elsewhere.nonzero()[0])))
        return ReplayResult(max_logit_difference=most, detail=detail, place=place, same_shape=False)

    def _last_token(self, request: int) -> int:
        """Return the place in the step of the last token of a request."""
        return self._starts[min(request, len(self._starts) - 2) + 1] - 1

    @property
    def _places_of_each(self) -> int:
        """Rows of logits that each request has in the serving path, the first of which is compared."""
        buffers = self._core.runner.program.buffers
        if not isinstance(buffers, RoundBuffers):
            return 1
        uniform = self._key.query_len in self._planner.limits.widths
        return self._key.query_len or 1 if uniform else buffers.sampled.shape[1]

    def _run(self, key: GraphKey | None) -> _Ran:
        """Run the batch on ``key``, or eagerly without padding, and return what it left."""
        runner = self._core.runner
        plan = self._plan(key)
        self._install(poisoned=key is not None)
        output = runner.collect(runner.launch(plan, self._batch))
        if self._sampler is not SamplerVariant.GENERAL:
            # The sampler's rows hold these requests from here on, and no step changes them.
            self._batch = replace(self._batch, admissions=())
        num_reqs, places = len(self._batch.requests), self._places_of_each
        logits = runner.program.buffers.logits[: num_reqs * places : places].clone()
        return _Ran(self._outputs(), logits, tuple(request.token_ids[0] for request in output.requests))

    def _run_padded(self) -> Mapping[str, torch.Tensor]:
        """Run the batch eagerly at the key's shape, with harmless padding, and return what it left."""
        self._install(poisoned=False)
        self._core.runner.graphs.capturer().run_eagerly(self._key, self._own_shape)
        return self._outputs()

    def _planned_shape(self) -> StepShape | None:
        """Return what attention between segments is given in the replay; None: the graph holds attention."""
        if self._key.mode is GraphMode.FULL:
            return None
        plan = self._plan(self._key)
        (stage,) = (stage for stage in plan.stages if stage.key == self._key)
        return own_shape(stage, plan.max_query_len)

    def _plan(self, key: GraphKey | None) -> ExecutionPlan:
        plan = self._planner.plan(self._batch, only(key, self._core.runner.graphs.catalog))
        assert plan.keys == (() if key is None else (key,)), f"{self._batch} does not fit in {key}"
        return plan

    def _install(self, *, poisoned: bool) -> None:
        self._canary.install(poisoned=poisoned)
        self._contexts.fill(self._places)

    def _outputs(self) -> Mapping[str, torch.Tensor]:
        results = self._canary.results()
        if self._key.sampler is None:
            return {name: tensor for name, tensor in results.items() if name not in _ROW_STATE}
        return results


@contextmanager
def _served_by(core: EngineCore, store: GraphStore) -> Iterator[None]:
    """Replay the graphs of ``store`` instead of the engine's own."""
    own, core.runner.graphs.store = core.runner.graphs.store, store
    try:
        yield
    finally:
        core.runner.graphs.store = own
