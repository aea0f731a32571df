"""The loop with depth-1 overlap: the next step is launched before the last one's tokens are read.

Owns the one step in flight. While the device computes it, the host takes in the step before and forms the next, so that
the device finds its next work waiting. A step with guided requests draws its tokens after that: its model runs while
the host reads the tokens before and fills the masks. All parts are those of the plain loop, which gives the same
tokens.
"""

from collections.abc import Iterable

from legato.engine.core import EngineCore
from legato.flow.request_update import RequestUpdate
from legato.runner.model_runner import InFlightStep


class OverlappedEngineCore(EngineCore):
    """An engine core whose updates come one step later than those of the plain one."""

    _in_flight: InFlightStep | None = None

    @classmethod
    def over(cls, core: EngineCore) -> "OverlappedEngineCore":
        """Return this loop over the parts of a plain one that has no work; the two are not to work at once."""
        assert not core.has_work, "its requests would be stepped by two loops"
        return cls(
            config=core.config,
            tokenizer=core.tokenizer,
            scheduler=core._scheduler,
            planner=core.planner,
            runner=core.runner,
            step_log=core.step_log,
            dropped=core._dropped,
            memory=core._memory,
            trace=core._trace,
        )

    def step(self) -> list[RequestUpdate]:
        """Launch a step, then return what is new of the one before; nothing where there was none."""
        with self._trace.step():
            updates = self._admit_compiled()
            begun, previous = self._begin(), self._in_flight
            self._in_flight = None if begun is None or begun.plan.target.shape.guided else self._draw(begun)
            if previous is not None:
                updates += self._finish(previous)
            if begun is not None and begun.plan.target.shape.guided:
                self._in_flight = self._draw(begun)
            self._settle()
        return updates

    def abort(self, request_ids: Iterable[str]) -> list[RequestUpdate]:
        """End requests now; their blocks are free at once. Unknown ids are ignored."""
        updates = super().abort(request_ids)
        self._settle()
        return updates

    def _settle(self) -> None:
        """Collect the step in flight where nobody is left to ask for another; all its requests have ended."""
        if self._in_flight is not None and not self.has_work:
            step, self._in_flight = self._in_flight, None
            self._finish(step)
