"""An engine core whose steps take exactly so long, however many requests run: what is left to see is the server's.

Every running request gets one token per step, each step begins when the one before has ended, and taking in updates
costs the core nothing. The processor is kept busy only at the end of a step, for a sleep is not exact.
"""

import time
from dataclasses import replace

import scripted_core

from legato.config.options import EngineOptions
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate

SPIN_S = 0.0005
"""How late a sleep may end."""
FIRST_LETTER, NUM_LETTERS = 66, 26
"""Tokens of letters in the tiny model's vocabulary."""
MAX_MODEL_LEN = 65_536


def build(options: EngineOptions, console: object = None) -> "PacedCore":
    """Build the core; a step takes ``SCRIPTED_STEP_S`` seconds."""
    return PacedCore(options)


class PacedCore(scripted_core.ScriptedCore):
    """Counts the tokens of each request instead of keeping them."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        scheduler = replace(self.config.scheduler, max_model_len=MAX_MODEL_LEN, max_num_seqs=options.max_queue)
        model = replace(self.config.model, max_position_embeddings=MAX_MODEL_LEN)
        self.config = replace(self.config, scheduler=scheduler, model=model)
        self._step_s = scripted_core.step_seconds()
        self._left: dict[str, int] = {}

    def add(self, request: Request) -> None:
        self._requests[request.request_id] = request
        self._left[request.request_id] = request.max_tokens

    def step(self) -> list[RequestUpdate]:
        due = time.perf_counter() + self._step_s
        self._steps += 1
        updates = [self._update(request_id) for request_id in list(self._requests)]
        if (idle_s := due - SPIN_S - time.perf_counter()) > 0:
            time.sleep(idle_s)
        while time.perf_counter() < due:
            pass
        return updates

    def _update(self, request_id: str) -> RequestUpdate:
        left = self._left[request_id] = self._left[request_id] - 1
        self._generated += 1
        if left == 0:
            del self._requests[request_id], self._left[request_id]
        return RequestUpdate(
            request_id=request_id,
            token_ids=(FIRST_LETTER + left % NUM_LETTERS,),
            finish_reason=None if left else FinishReason.LENGTH,
        )
