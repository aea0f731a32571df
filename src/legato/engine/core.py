"""The loop: schedule, plan, launch, collect, commit. Owns nothing else; what each word means stands in its package."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from legato.config.engine import EngineConfig
from legato.engine.grammars import Grammars
from legato.engine.graph_report import graph_report
from legato.engine.guides import Guides, ended_with
from legato.engine.memory import MemoryReport
from legato.flow.request import Request, id_in_use
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.loading.tokenizer import Tokenizer
from legato.observability.records import StepLog
from legato.observability.stats import EngineStats
from legato.observability.trace import NO_TRACE, Tracer
from legato.plan.planner import Planner
from legato.runner.graph_capture import DroppedKey
from legato.runner.model_runner import BegunStep, InFlightStep, ModelRunner
from legato.runner.round_program import RoundProgram
from legato.scheduler.scheduler import Scheduler


class EngineCore:
    """A scheduler, a planner and a runner, stepped together. Single-threaded."""

    def __init__(
        self,
        *,
        config: EngineConfig,
        tokenizer: Tokenizer | None,
        scheduler: Scheduler,
        planner: Planner,
        runner: ModelRunner,
        step_log: StepLog,
        dropped: list[DroppedKey],
        memory: MemoryReport,
        trace: Tracer = NO_TRACE,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.step_log = step_log
        self._scheduler = scheduler
        self._planner = planner
        self._runner = runner
        self._dropped = dropped
        self._memory = memory
        self._trace = trace
        self._guides = Guides(Grammars(tokenizer, config.model))

    @property
    def grammars(self) -> Grammars:
        """What compiles the guides of this engine's requests."""
        return self._guides.grammars

    @property
    def planner(self) -> Planner:
        """What plans the steps."""
        return self._planner

    @property
    def runner(self) -> ModelRunner:
        """What runs them."""
        return self._runner

    @property
    def dropped(self) -> tuple[DroppedKey, ...]:
        """Graphs that were captured or tried, and cannot serve."""
        return tuple(self._dropped)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self._scheduler.has_work or self._guides.num_compiling > 0

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError for one that can never run, QueueFullError when too many are held.

        A guided one joins the queue when its grammar is compiled, which goes on beside the steps.
        """
        if self._guides.is_compiling(request.request_id):
            raise id_in_use(request.request_id)
        self._scheduler.check(request, num_elsewhere=self._guides.num_compiling)
        if request.params.guided is None or self._guides.open(request):
            self._scheduler.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[RequestUpdate]:
        """End requests now; their blocks are free at once. Unknown ids are ignored."""
        updates = []
        for request_id in request_ids:
            if self._guides.close(request_id):
                updates.append(RequestUpdate(request_id=request_id, finish_reason=FinishReason.ABORT))
            else:
                updates += self._scheduler.abort((request_id,))
        return updates

    def step(self) -> list[RequestUpdate]:
        """Run one step and return what is new; nothing where no request can run."""
        with self._trace.step():
            updates = self._admit_compiled()
            begun = self._begin()
            return updates if begun is None else updates + self._finish(self._draw(begun))

    def _admit_compiled(self) -> list[RequestUpdate]:
        """Queue the guided requests whose grammars are there now; return the ends of those that have none."""
        if not self._guides.num_compiling:
            return []
        compiled = self._guides.take_compiled(may_wait=not self._scheduler.has_work)
        for request in compiled.ready:
            self._scheduler.add(request)
        return list(compiled.failed)

    def _begin(self) -> BegunStep | None:
        """Form a step and run its model; return None where no request can run."""
        with self._trace.span("schedule"):
            batch = self._scheduler.schedule()
        if batch is None:
            return None
        self._runner.graphs.drop_stale()
        with self._trace.span("plan"):
            plan = self._planner.plan(batch, self._runner.graphs.catalog)
        self._trace.planned(plan.step, len(plan.rows), plan.target)
        return self._runner.begin(plan, batch)

    def _draw(self, begun: BegunStep) -> InFlightStep:
        """Draw the tokens of a step; those before are known where it is guided."""
        masks = None
        if begun.plan.target.shape.guided:
            with self._trace.span("masks"):
                masks = self._guides.masks(begun.batch)
        return self._runner.draw(begun, masks)

    def _finish(self, step: InFlightStep) -> list[RequestUpdate]:
        """Wait for a step and take in what it computed."""
        output = self._runner.collect(step)
        with self._trace.span("commit"):
            updates = self._scheduler.commit(step.batch, output)
            return [self._followed(update) for update in updates] if self._guides.num_running else updates

    def _followed(self, update: RequestUpdate) -> RequestUpdate:
        """Have the request's grammar follow; return the update, or the end of a request that has left its grammar."""
        if self._guides.follow(update):
            return update
        self._scheduler.abort((update.request_id,))
        return ended_with(update.request_id, "no token of the vocabulary continues the output as its guide requires")

    def pin_drafts(self, num_drafts: int | None) -> None:
        """Feed so many drafts in every step, for measurements; None: choose again. The engine must be one that does."""
        chooser = self._scheduler.chooser
        assert chooser is not None, "the number of drafts is not chosen"
        assert num_drafts is None or num_drafts in chooser.costs.num_drafts, "there are no graphs of this width"
        chooser.pinned = num_drafts

    def set_synthetic_acceptance(self, rates: Sequence[float]) -> None:
        """Accept drafts at these rates from now on, for measurements; acceptance must be synthetic already."""
        program = self._runner.program
        assert isinstance(program, RoundProgram) and program.synthetic is not None, "acceptance is not synthetic"
        program.synthetic.set_rates(rates)
        if self._scheduler.chooser is not None:
            self._scheduler.chooser.forget()

    def reset_prefix_cache(self) -> None:
        """Forget all computed prefixes; running requests are not touched."""
        self._scheduler.reset_prefix_cache()

    def stats(self) -> EngineStats:
        """Return the counts of now."""
        log, graphs = self.step_log, self._runner.graphs
        return replace(
            self._scheduler.stats(),
            graph_steps={f"{stage} {mode}": count for (stage, mode), count in log.steps.items()},
            graph_fallbacks={f"{stage} {reason}": count for (stage, reason), count in log.fallbacks.items()},
            graph_replays=dict(log.replays),
            graph_padding_tokens=log.padding_tokens,
            graph_capture_seconds=sum(graph.capture_ms for graph in graphs.store.graphs.values()) / 1e3,
            graph_bytes=graphs.num_bytes,
        )

    def graph_report(self) -> dict[str, Any]:
        """Return policy, decisions, memory, and the catalog with what each graph cost, as JSON values."""
        graphs = self._runner.graphs
        return graph_report(
            self.config,
            graphs.catalog,
            graphs.store.graphs,
            self._dropped,
            shared_bytes=graphs.shared_bytes,
            memory=replace(self._memory, graphs=graphs.num_bytes),
        )
