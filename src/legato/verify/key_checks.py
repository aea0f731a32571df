"""Every check of one engine's graphs. Owns their order and what becomes a finding; each check is its own module's."""

from collections.abc import Callable, Sequence

import torch

from legato.engine.core import EngineCore
from legato.graphs.captured import GraphStore
from legato.graphs.key import GraphKey
from legato.models.causal_lm import CausalLM
from legato.observability.reasons import Reason
from legato.runner.graph_capture import DroppedKey, Proof, frozen_garbage_collection
from legato.runner.step_program import StepProgram
from legato.verify.contexts import ComputedContexts
from legato.verify.layer_probe import LayerProbe, first_difference
from legato.verify.reachability import batch_that_selects
from legato.verify.replay_check import ReplayCheck
from legato.verify.report import EngineResult, Finding

KeyProgress = Callable[[int, int, str], None]
"""Told (keys done, keys in all, what is checked)."""
_OTHER_SEED = 4
"""Of the batch that the second capture is made over: not the first one's, and even, as the one that proves is odd."""


class KeyChecks:
    """Checks all graphs of an engine that serves nobody, and adds to its result."""

    def __init__(
        self,
        core: EngineCore,
        model: CausalLM,
        result: EngineResult,
        sequences: Sequence[Sequence[int]],
        *,
        strict: bool,
    ) -> None:
        """``sequences``: token ids such as the model meets, from which contexts are computed."""
        self._core = core
        self._model = model
        self._result = result
        self._sequences = sequences
        self._strict = strict

    def run(self, proven: set[GraphKey], progress: KeyProgress) -> None:
        """Check every key and let it join ``proven``; one that was in it is only replayed, against its own shape.

        Only the first failure of each kind is traced to its layer: each trace captures a graph again.
        """
        runner, result = self._core.runner, self._result
        before = _addresses(runner.program)
        keys = runner.graphs.catalog.keys
        result.num_keys, result.num_dropped = len(keys), len(self._core.dropped)
        with torch.inference_mode(), frozen_garbage_collection():
            for dropped in self._core.dropped:
                self._dropped(dropped)
            contexts = ComputedContexts(self._core, self._sequences)
            for done, key in enumerate(keys, start=1):
                self._reachable(key)
                first_time = key not in proven
                if first_time:
                    self._captured_twice(key)
                    proven.add(key)
                self._replayed(key, contexts, without_padding=first_time)
                progress(done, len(keys), str(key))
            runner.graphs.capturer().clear()
        self._unmoved(before)

    def _dropped(self, dropped: DroppedKey) -> None:
        """Report a graph that the engine itself refused; one that cannot be captured only in strict mode."""
        if dropped.reason is Reason.CAPTURE_FAILED:
            if self._strict:
                self._found("capture", dropped.key, None, dropped.detail)
            return
        place = None
        if dropped.reason is Reason.CANARY_FAILED and self._is_first("canary"):
            proof = self._prove(dropped.key, 2, LayerProbe(self._model, dropped.key.num_tokens))
            place = first_difference(proof.expected, proof.given, None) if isinstance(proof, Proof) else None
        self._found("canary", dropped.key, place, dropped.detail)

    def _reachable(self, key: GraphKey) -> None:
        if batch_that_selects(key, self._core.planner, self._core.runner.graphs.catalog) is not None:
            self._result.num_reachable += 1
            return
        self._found("reachability", key, None, "no batch that the scheduler can make selects this graph")

    def _captured_twice(self, key: GraphKey) -> None:
        """Capture the key over other data and compare with what the first capture was proven by."""
        proof = self._prove(key, _OTHER_SEED, None)
        if isinstance(proof, DroppedKey):
            self._found("second_capture", key, None, proof.detail)
            return
        self._result.num_captured_twice += 1
        place = first_difference(proof.expected, proof.given, None)
        if place is None:
            return
        if self._is_first("second_capture"):
            shown = self._prove(key, _OTHER_SEED, LayerProbe(self._model, key.num_tokens))
            place = (first_difference(shown.expected, shown.given, None) if isinstance(shown, Proof) else None) or place
        self._found("second_capture", key, place, "a value was frozen at capture: other data gives another graph")

    def _replayed(self, key: GraphKey, contexts: ComputedContexts, *, without_padding: bool) -> None:
        """Replay the graph as serving does, and see in the records that it ran."""
        check, log = ReplayCheck(self._core, key, contexts), self._core.step_log
        before = log.replays[str(key)]
        outcome = check.run(without_padding=without_padding)
        result = self._result
        result.num_replayed += log.replays[str(key)] > before
        result.max_logit_difference = max(result.max_logit_difference, outcome.max_logit_difference)
        if outcome.detail is None:
            return
        place = None
        if self._is_first("replay"):
            place = check.first_layer(LayerProbe(self._model, self._max_num_tokens), same_shape=outcome.same_shape)
        self._found("replay", key, place or outcome.place, outcome.detail)

    def _unmoved(self, before: dict[str, int]) -> None:
        after = _addresses(self._core.runner.program)
        moved = [name for name in before if after.get(name) != before[name]]
        if moved:
            self._found("addresses", None, None, f"moved while graphs ran: {', '.join(moved)}")

    def _prove(self, key: GraphKey, capturing_seed: int, probe: LayerProbe | None) -> Proof | DroppedKey:
        graphs = self._core.runner.graphs
        capturer = graphs.capturer(GraphStore(graphs.epoch))
        if probe is None:
            return capturer.prove(key, capturing_seed=capturing_seed)
        with probe.installed():
            return capturer.prove(key, capturing_seed=capturing_seed, observe=probe.outputs)

    @property
    def _max_num_tokens(self) -> int:
        return self._core.config.scheduler.max_num_batched_tokens

    def _is_first(self, check: str) -> bool:
        return all(finding.check != check for finding in self._result.findings)

    def _found(self, check: str, key: GraphKey | None, place: tuple[str, int] | None, detail: str) -> None:
        layer, token = place or (None, None)
        self._result.findings.append(
            Finding(
                check=check,
                engine=self._result.name,
                key=None if key is None else str(key),
                layer=layer,
                token=token,
                detail=detail,
            )
        )


def _addresses(program: StepProgram) -> dict[str, int]:
    """Return where everything that graphs read and write lies, by name."""
    tensors = {**program.buffers.tensors(), **program.state.tensors()}
    for layer, cache in program.caches.items():
        tensors |= {f"keys of layer {layer}": cache.key, f"values of layer {layer}": cache.value}
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}
