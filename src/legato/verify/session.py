"""A whole verification: engines built one after another over the same weights. Owns their order and their comparison.

The eager engine comes first and is what all others are held to; it is itself held to plain attention.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from legato.config.options import EngineOptions
from legato.config.speculative import RejectionMethod
from legato.engine.bootstrap import build_engine, load_model
from legato.engine.core import EngineCore
from legato.engine.input_processor import Prompt
from legato.engine.overlap import OverlappedEngineCore
from legato.engine.pinned_options import pinned
from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved, resolve
from legato.errors import BackendError
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphPolicy
from legato.sampling.near_ties import RELATIVE_TOLERANCE
from legato.verify.key_checks import KeyChecks
from legato.verify.layer_probe import LayerProbe, first_difference
from legato.verify.prompts import default_prompts, read_prompts
from legato.verify.report import EngineResult, Finding, Report
from legato.verify.transcript import Comparison, Departure, Output, compare, requests_for, transcribe

REFERENCE_BACKEND = "reference"
Progress = Callable[[str, int, int, str], None]
"""Told (engine, keys done, keys in all, what is checked)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What is to be verified."""

    options: EngineOptions
    policies: tuple[GraphPolicy, ...] = tuple(GraphPolicy)
    prompts: Path | None = None
    """A file of prompts, one a line; None: the default ones."""
    max_tokens: int = 16


def verify(request: VerifyRequest, console: Console, progress: Progress = lambda *_: None) -> Report:
    """Run every check and return what was found; building is shown on ``console``.

    Raises ConfigError, ModelError or RequestError where there is nothing to verify.
    """
    return _Session(request, console, progress).run()


class _Session:
    def __init__(self, request: VerifyRequest, console: Console, progress: Progress) -> None:
        self._request = request
        self._console = console
        self._progress = progress
        self._resolved = resolve(request.options)
        self._model = load_model(self._resolved, BuildProgress(console))
        self._options = _plain_options(request.options, self._resolved)
        self._prompts: list[Prompt] = []
        self._expected: list[Output] = []
        """What the eager engine said."""
        self._accepted: tuple[int, ...] = ()
        """Which of its drafts stood."""
        self._seen_apart = 0.0
        """The most by which plain attention's log-probabilities were apart from its, all within the tolerance."""
        self._sequences: list[list[int]] = []
        """Each prompt with what the eager engine said to it."""
        self._proven: set[GraphKey] = set()
        self._notes: list[str] = []

    def run(self) -> Report:
        eager, overlapped = self._eager()
        results = [eager, *self._reference(), overlapped, *self._graph_engines()]
        config = self._resolved.config
        return Report(
            model=config.model_name,
            device=str(self._resolved.device.facts),
            dtype=config.dtype,
            attention_backend=config.attention_backend,
            relative_tolerance=RELATIVE_TOLERANCE[config.dtype],
            seen_apart=self._seen_apart,
            engines=results,
            notes=self._notes,
        )

    def _eager(self) -> tuple[EngineResult, EngineResult]:
        """Build the engine that all others are compared with, and keep its words."""
        result, started = EngineResult(name="none"), time.perf_counter()
        core = self._build(result.name, self._options)
        file, max_tokens = self._request.prompts, self._request.max_tokens
        self._prompts = read_prompts(file) if file else default_prompts(core.tokenizer, core.config, max_tokens)
        self._expected = self._say(core, result)
        self._accepted = result.accepted
        self._sequences = [
            [*request.prompt_token_ids, *(position.token_id for position in output.logprobs)]
            for request, output in zip(requests_for(core, self._prompts, max_tokens), self._expected, strict=True)
        ]
        result.num_tokens = sum(len(output.logprobs) for output in self._expected)
        result.seconds = time.perf_counter() - started
        return result, self._overlapped(core, result.name)

    def _reference(self) -> Iterator[EngineResult]:
        """Hold the eager engine to plain attention, with no more context than the prompts need."""
        if self._resolved.config.attention_backend == REFERENCE_BACKEND:
            return
        speculation = self._resolved.speculation
        if speculation is not None and speculation.config.rejection_method is RejectionMethod.SYNTHETIC:
            # A draft of another rounding would stand as well, and be another token.
            self._notes.append(f"not compared with {REFERENCE_BACKEND} attention: drafts stand whatever the model says")
            return
        options = replace(self._options, attention_backend=REFERENCE_BACKEND, max_model_len=self._longest)
        result, started = EngineResult(name=REFERENCE_BACKEND), time.perf_counter()
        try:
            core = self._build(result.name, options)
        except BackendError as error:
            self._notes.append(f"not compared with {REFERENCE_BACKEND} attention: {error.summary}")
            return
        # The eager engine is the one under test here: the reference is right.
        said = self._say(core, result)
        del core
        self._compare(result, said, self._expected, (options, self._options))
        self._seen_apart = result.max_logprob_difference
        result.seconds = time.perf_counter() - started
        yield result

    def _graph_engines(self) -> Iterator[EngineResult]:
        """Build every other engine, over generated code where that is what the user serves with."""
        options = replace(self._options, compile=self._request.options.compile)
        if options.compile != "none":
            self._notes.append(f"engine none runs kernels as written; all others, code by {options.compile}")
            yield from self._with_graphs(f"none, {options.compile}", options)
        for policy in self._request.policies:
            if policy is not GraphPolicy.NONE:
                yield from self._with_graphs(str(policy), replace(options, graph_policy=str(policy)))

    def _with_graphs(self, name: str, options: EngineOptions) -> list[EngineResult]:
        result, started = EngineResult(name=name), time.perf_counter()
        core = self._build(name, options)
        said = self._say(core, result)
        overlapped = self._overlapped(core, name)
        strict = self._request.options.graph_strict
        checks = KeyChecks(core, self._model, result, self._sequences, strict=strict)
        checks.run(self._proven, lambda done, total, what: self._progress(name, done, total, what))
        del core, checks
        self._compare(result, self._expected, said, (self._options, options))
        result.seconds = time.perf_counter() - started
        return [result, overlapped]

    def _overlapped(self, core: EngineCore, name: str) -> EngineResult:
        """Let the overlapped loop say it too, over the same graphs."""
        result, started = EngineResult(name=f"{name}, overlap"), time.perf_counter()
        core.reset_prefix_cache()
        said = self._say(OverlappedEngineCore.over(core), result)
        # Its layers are the plain loop's: what only overlap changes is the order of steps.
        self._compare(result, self._expected, said, None)
        result.seconds = time.perf_counter() - started
        return result

    def _build(self, name: str, options: EngineOptions) -> EngineCore:
        gc.collect()  # the engine before holds its graphs and its cache in reference cycles
        self._console.print(f"engine {name}", style="bold", highlight=False)
        return build_engine(options, self._console, model=self._model)

    def _say(self, core: EngineCore, result: EngineResult) -> list[Output]:
        before, stood_before = core.step_log.steps.copy(), core.stats().spec_decode_accepted_per_position
        said = transcribe(core, requests_for(core, self._prompts, self._request.max_tokens))
        taken = core.step_log.steps - before
        stood = core.stats().spec_decode_accepted_per_position
        result.accepted = tuple(after - earlier for after, earlier in zip(stood, stood_before, strict=True))
        result.steps = {f"{stage} {mode}": count for (stage, mode), count in taken.items()}
        return said

    def _compare(
        self,
        result: EngineResult,
        expected: Sequence[Output],
        given: Sequence[Output],
        engines: tuple[EngineOptions, EngineOptions] | None,
    ) -> None:
        """Add the comparison to ``result``; a departure is traced to its layer by building ``engines`` once more."""
        config = self._resolved.config
        compared: Comparison = compare(
            expected, given, dtype=config.dtype, vocab_size=config.model.vocab_size, seen=self._seen_apart
        )
        result.num_tokens, result.num_near_ties = compared.num_tokens, compared.num_near_ties
        result.max_logprob_difference = compared.max_logprob_difference
        departure = compared.departure
        if departure is None:
            self._compare_acceptance(result)
            return
        layer = None if engines is None else self._first_layer(departure, *engines)
        result.findings.append(
            Finding(
                check="prompts",
                engine=result.name,
                key=departure.record.key,
                layer=layer,
                token=departure.position,
                detail=f"prompt {departure.request}: {departure.detail}",
            )
        )

    def _compare_acceptance(self, result: EngineResult) -> None:
        """Add what stood of the drafts, where it is not what stood in the eager engine, though all tokens are.

        Drafts that are computed may change with rounding, as tokens may: those of each key are compared at its shape.
        How many are made where their number is chosen depends on the clock.
        """
        found = self._resolved.speculation
        if found is None or found.plan.extends or found.config.chosen_per_step or result.num_near_ties > 0:
            return
        if result.accepted != self._accepted:
            detail = f"drafts that stood by position: {list(result.accepted)} in place of {list(self._accepted)}"
            result.findings.append(
                Finding(check="acceptance", engine=result.name, key=None, layer=None, token=None, detail=detail)
            )

    def _first_layer(self, departure: Departure, expected: EngineOptions, given: EngineOptions) -> str | None:
        """Run both engines up to the step again, with their layers shown, and return the first that differs."""
        right, wrong = (self._layers_at(departure, options) for options in (expected, given))
        place = first_difference(right, wrong, self._resolved.config.dtype)
        return None if place is None else place[0]

    def _layers_at(self, departure: Departure, options: EngineOptions) -> dict[str, torch.Tensor]:
        record = departure.record
        probe = LayerProbe(self._model, self._resolved.config.scheduler.max_num_batched_tokens)
        with torch.inference_mode(), probe.installed():
            core = self._build("again, to find the layer", options)
            requests = requests_for(core, self._prompts, self._request.max_tokens)
            transcribe(core, requests, until_step=record.step)
            return probe.outputs(record.num_tokens)

    @property
    def _longest(self) -> int:
        """Tokens of the longest prompt with its output."""
        return max(output.num_prompt_tokens + len(output.logprobs) for output in self._expected)


def _plain_options(options: EngineOptions, resolved: Resolved) -> EngineOptions:
    """Return options of an eager engine that has the same cache, limits and graph sizes as the user's."""
    plain = pinned(options, resolved)
    return replace(plain, graph_policy=str(GraphPolicy.NONE), graph_strict=False, overlap=False, compile="none")
