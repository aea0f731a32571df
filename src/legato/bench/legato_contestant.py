"""Legato as a contestant: the engine core in this process, token ids in and out. Owns the driving loop."""

import itertools
import time
from collections.abc import Mapping

from legato.bench.contestant import Prompts, Timing
from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.errors import EngineDeadError
from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams


class LegatoContestant:
    """An engine core, stepped by hand so that the clock is read after every step."""

    def __init__(self, name: str, options: EngineOptions) -> None:
        self.name = name
        self.core = build_engine(options)
        self._request_ids = itertools.count()

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate greedily. Raises EngineDeadError where a request ends with an error."""
        started = time.perf_counter()
        outputs: dict[str, list[int]] = {}
        for prompt in prompts:
            request = self._request(prompt, output_len)
            outputs[request.request_id] = []
            self.core.add(request)
        first_token_s = 0.0
        while self.core.has_work:
            for update in self.core.step():
                if update.error is not None:
                    raise EngineDeadError(f"{self.name}: a measured request failed", {"found": update.error})
                outputs[update.request_id].extend(update.token_ids)
            if not first_token_s and all(outputs.values()):
                first_token_s = time.perf_counter() - started
        return Timing(
            first_token_s=first_token_s,
            total_s=time.perf_counter() - started,
            token_ids=tuple(map(tuple, outputs.values())),
        )

    def graph_steps(self) -> Mapping[str, int]:
        """Return the engine's own count of its steps."""
        return self.core.stats().graph_steps

    def _request(self, prompt: tuple[int, ...], output_len: int) -> Request:
        return Request(
            request_id=f"bench-{next(self._request_ids)}",
            prompt_token_ids=prompt,
            params=SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True),
            seed=0,
            stop_token_ids=frozenset(),
            max_tokens=output_len,
            arrival=time.monotonic(),
        )
