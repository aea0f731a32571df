"""What an engine would do, as JSON values, from configuration files alone: no weight is read, nothing is allocated."""

from collections.abc import Sequence
from typing import Any

from legato.attention.registry import BACKENDS, load_backend
from legato.attention.selection import model_support
from legato.config.options import EngineOptions
from legato.engine import graph_report as reports
from legato.engine.kv_sizing import planned_memory
from legato.engine.resolve import resolve
from legato.errors import BackendError, ConfigError
from legato.flow.execution_plan import StagePlan
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import ScheduledBatch, ScheduledRequest
from legato.graphs.modes import GraphMode, SamplerVariant
from legato.plan.planner import Planner


def graph_report(options: EngineOptions) -> dict[str, Any]:
    """Return policy, decisions, catalog and memory; what is known only once graphs are captured is null.

    The KV cache is among it, where it takes what measurements at the start leave.
    """
    resolved = resolve(options)
    memory = planned_memory(resolved)
    return reports.graph_report(resolved.config, resolved.catalog, {}, (), shared_bytes=None, memory=memory)


def backend_report(options: EngineOptions) -> list[dict[str, Any]]:
    """Return every registered backend and the chosen one, with their levels for this model, or why they have none."""
    resolved = resolve(options)
    entries = []
    for name in dict.fromkeys([*BACKENDS, resolved.backend.name]):
        try:
            support = model_support(load_backend(name), resolved.attention, resolved.layer_groups)
            level, reason = support.level.name, support.reason
        except BackendError as error:
            level, reason = "unavailable", "; ".join([error.summary, *map(str, error.details.values())])
        chosen = name == resolved.backend.name
        entries.append({"name": name, "level": level, "reason": reason, "selected": chosen})
    return entries


def plan_report(options: EngineOptions, *, query_lens: Sequence[int]) -> dict[str, Any]:
    """Return the plan of one greedy step whose requests feed ``query_lens`` tokens each.

    A request decodes if it feeds 1 token, or with a drafter as many as it verifies.

    Raises ConfigError for a batch that the scheduler would never make.
    """
    resolved = resolve(options)
    limits = resolved.limits
    if not 1 <= len(query_lens) <= limits.max_num_seqs or min(query_lens) < 1:
        limit = f"1 to {limits.max_num_seqs} requests of at least one token"
        raise ConfigError("no step has such requests", {"requested": list(query_lens), "limit": limit})
    if sum(query_lens) > limits.max_num_batched_tokens:
        found = f"{sum(query_lens)} tokens"
        raise ConfigError(
            "no step has so many tokens", {"found": found, "limit": f"{limits.max_num_batched_tokens} in a step"}
        )
    stages = () if resolved.speculation is None else resolved.speculation.stages
    planner = Planner(limits=limits, key_ints=resolved.key_ints, draft_stages=stages)
    plan = planner.plan(_batch(query_lens, limits.widths), resolved.catalog)
    target = plan.target
    return {
        "requested": str(target.requested),
        "mode": str(target.mode),
        "key": None if target.key is None else str(target.key),
        "reason": None if target.reason is None else str(target.reason),
        "num_reqs": target.shape.num_reqs,
        "num_reqs_padded": target.num_reqs_padded,
        "num_tokens": target.shape.num_tokens,
        "num_tokens_padded": target.num_tokens_padded,
        "query_len": target.shape.query_len,
        "sampler": str(target.shape.sampler),
        "sample_in_graph": plan.sample_in_graph,
    } | {f"{stage.stage} stage": _drafting(stage) for stage in plan.draft_stages}


def _drafting(stage: StagePlan) -> str:
    """Return mode and graph of what a drafter does after the target."""
    if stage.key is not None:
        return str(stage.key)
    return f"{stage.mode}, in the graph of the round" if stage.mode is GraphMode.FULL else f"{stage.mode}"


def _batch(query_lens: Sequence[int], widths: Sequence[int]) -> ScheduledBatch:
    requests = tuple(
        ScheduledRequest(
            request_id=str(row),
            row=row,
            num_computed_tokens=1 if query_len in widths else 0,
            token_ids=(0,) * query_len,
            is_decode=query_len in widths,
            samples=True,
            num_output_tokens=1 if query_len in widths else 0,
            num_drafts=query_len - 1 if query_len in widths else 0,
            sampler=SamplerVariant.GREEDY,
            params=SamplingParams(temperature=0.0),
        )
        for row, query_len in enumerate(query_lens)
    )
    return ScheduledBatch(step=1, requests=requests, released_rows=(), admissions=(), block_appends=())
