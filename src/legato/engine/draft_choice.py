"""Choosing the number of drafts while the engine runs. Owns when costs are measured, and what is said of them."""

from legato.config.engine import Decision
from legato.config.speculative import SpeculativeConfig
from legato.device.protocol import Device
from legato.engine.progress import BuildProgress
from legato.plan.planner import Planner
from legato.runner.model_runner import ModelRunner
from legato.runner.round_timing import measure_round_costs
from legato.scheduler.draft_chooser import DraftChooser
from legato.scheduler.round_costs import RoundCosts


def draft_chooser(
    config: SpeculativeConfig | None, device: Device, runner: ModelRunner, planner: Planner, show: BuildProgress
) -> DraftChooser | None:
    """Return what chooses, with costs measured now on the captured graphs; None: nothing is to be chosen."""
    if config is None or not config.chosen_per_step:
        return None
    costs = measure_round_costs(device, runner, planner, config.numbers_of_drafts)
    show.decisions([_decision(costs, size) for size in sorted({costs.sizes[0], costs.sizes[-1]})])
    return DraftChooser(costs)


def _decision(costs: RoundCosts, num_reqs: int) -> Decision:
    """Return the line that tells what drafts cost, and from what acceptance on they pay."""
    plain, *rounds = costs.at(num_reqs)
    told = ", ".join(f"{number}: {ms / plain:.2f}" for number, ms in zip(costs.num_drafts[1:], rounds, strict=True))
    return Decision(
        subject=f"drafts at batch {num_reqs}",
        requested="auto",
        given=f"{costs.num_drafts[0]} to {costs.num_drafts[-1]}",
        reason=f"a step is {plain:.3f} ms; with drafts, times as long, and so many tokens it must bring: {told}",
    )
