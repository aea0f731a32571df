"""Legato as a contestant: the engine core in this process, token ids in and out. Owns the driving loop."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

import legato
from legato.bench.contestant import DraftCounts, NewTokens, Prompts, StepCounts, Timing
from legato.bench.subject import Subject
from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine, load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.errors import EngineDeadError
from legato.flow.request import Request
from legato.flow.request_update import RequestUpdate
from legato.flow.sampling_params import SamplingParams
from legato.kvcache.sizing import bytes_per_block
from legato.models.causal_lm import CausalLM
from legato.results.rows_file import model_name


class LegatoContestant:
    """An engine core, stepped by hand so that the clock is read after every step."""

    def __init__(
        self, name: str, options: EngineOptions, console: Console | None = None, *, model: CausalLM | None = None
    ) -> None:
        self.name = name
        self.core = build_engine(options, console, model=model)
        config = self.core.config
        self.subject = Subject(
            engine="legato",
            version=legato.__version__,
            model=model_name(config.model_name),
            dtype=config.dtype,
            backend=config.attention_backend,
            policy=config.graph_policy,
        )
        self._request_ids = itertools.count()
        self._seeds = itertools.count()

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate greedily. Raises EngineDeadError where a request ends with an error."""
        started = time.perf_counter()
        outputs: dict[str, list[int]] = {}
        for prompt in prompts:
            request_id = f"bench-{next(self._request_ids)}"
            outputs[request_id] = []
            self.add(request_id, prompt, output_len, frozenset())
        first_token_s = together_s = waited_s = 0.0
        num_steps = num_first = num_together = 0
        before = self.drafts()
        while self.core.has_work:
            updates = self._updates()
            for update in updates:
                outputs[update.request_id].extend(update.token_ids)
            if first_token_s:
                num_steps += 1
                if not together_s and any(update.finish_reason is not None for update in updates):
                    together_s, num_together = time.perf_counter() - started, sum(map(len, outputs.values()))
            elif all(outputs.values()):
                first_token_s, waited_s = time.perf_counter() - started, self._waited_s()
                num_first = sum(map(len, outputs.values()))
        total_s, waited_s = time.perf_counter() - started, self._waited_s() - waited_s
        host_s = total_s - first_token_s - waited_s
        return Timing(
            first_token_s=first_token_s,
            total_s=total_s,
            token_ids=tuple(map(tuple, outputs.values())),
            host_ms_per_step=host_s * 1e3 / num_steps if waited_s and num_steps else None,
            num_steps=num_steps,
            drafts=self.drafts() - before,
            together_ms=(together_s - first_token_s) * 1e3 * len(prompts) / (num_together - num_first)
            if together_s
            else None,
        )

    def seed_from(self, first: int) -> None:
        """Count the seeds of the requests that follow from ``first``, so that chance can be the same again."""
        self._seeds = itertools.count(first)

    def add(self, request_id: str, prompt: tuple[int, ...], output_len: int, end_token_ids: frozenset[int]) -> None:
        """Begin one greedy request, whose seed is its own: synthetic acceptance draws from it."""
        self.core.add(
            Request(
                request_id=request_id,
                prompt_token_ids=prompt,
                params=SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True),
                seed=next(self._seeds),
                stop_token_ids=end_token_ids,
                max_tokens=output_len,
                arrival=time.monotonic(),
            )
        )

    def step(self) -> Sequence[NewTokens]:
        """Run one step. Raises EngineDeadError where a request ends with an error."""
        return [
            NewTokens(
                request_id=update.request_id,
                token_ids=update.token_ids,
                finished=update.finish_reason is not None,
            )
            for update in self._updates()
        ]

    def counts(self) -> StepCounts:
        """Return the engine's own counts."""
        stats = self.core.stats()
        return StepCounts(
            steps=stats.graph_steps,
            padding_tokens=stats.graph_padding_tokens,
            waited_s=self._waited_s(),
            prefix_hits=stats.prefix_cache_hits,
        )

    def drafts(self) -> DraftCounts:
        """Return the engine's own counts."""
        stats = self.core.stats()
        return DraftCounts(num_judged=stats.spec_decode_drafts, stood=stats.spec_decode_accepted_per_position)

    def _updates(self) -> list[RequestUpdate]:
        updates = self.core.step()
        for update in updates:
            if update.error is not None:
                raise EngineDeadError(f"{self.name}: a measured request failed", {"found": update.error})
        return updates

    def _waited_s(self) -> float:
        """Return the seconds that the host has waited for the device; 0 for a CPU, which is both."""
        return 0.0 if self.core.config.device == "cpu" else self.core.step_log.waited_us / 1e6


def contestant_per_policy(
    options: EngineOptions, policies: Sequence[str], console: Console | None = None
) -> list[LegatoContestant]:
    """Return one engine per graph policy, all over the same weights, with equal shares of the memory for the cache."""
    return _over_one_model(options, {f"legato {policy}": {"graph_policy": policy} for policy in policies}, console)


def plain_and_drafting(options: EngineOptions, console: Console | None = None) -> list[LegatoContestant]:
    """Return an engine without the drafter and one with it, in this order; they share as policies do."""
    return _over_one_model(options, {"legato plain": {"speculative_config": None}, "legato": {}}, console)


def _over_one_model(
    options: EngineOptions, changes: Mapping[str, Mapping[str, Any]], console: Console | None
) -> list[LegatoContestant]:
    """Return engines by the names and with the options that ``changes`` has."""
    resolved = resolve(options)
    model = load_model(resolved, BuildProgress(console))
    cache = resolved.config.cache
    block_bytes = bytes_per_block(resolved.layer_groups, cache.block_size, resolved.dtype.itemsize)
    shared = replace(options, kv_cache_memory_bytes=cache.num_blocks // len(changes) * block_bytes)
    return [LegatoContestant(name, replace(shared, **own), console, model=model) for name, own in changes.items()]
