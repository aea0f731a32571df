"""What an engine does where the user says nothing, by kind of device. A table, with the reason for each policy."""

from dataclasses import dataclass

from legato.graphs.modes import GraphPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDefaults:
    """Defaults that depend on the device."""

    max_num_seqs: int
    max_num_batched_tokens: int
    overlap: bool
    """A CPU computes a step while it is launched, so that nothing is left to overlap with."""
    graph_policy: GraphPolicy
    policy_reason: str


DEFAULTS: dict[str, DeviceDefaults] = {
    "cpu": DeviceDefaults(
        max_num_seqs=16,
        max_num_batched_tokens=512,
        overlap=False,
        graph_policy=GraphPolicy.FULL_DECODE_ONLY,
        policy_reason="on a cpu, capturing prefill sizes costs more at start than replays give back",
    ),
    "cuda": DeviceDefaults(
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        overlap=True,
        graph_policy=GraphPolicy.FULL_AND_PIECEWISE,
        policy_reason="every batch on a graph",
    ),
}
"""Kind of device -> defaults."""
