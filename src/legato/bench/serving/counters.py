"""What a server counts of itself, from its ``/metrics``. Owns the names of Legato's and vLLM's metrics.

Counters are read before and after a run; what lies between is the run's, if nobody else asks the server meanwhile.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from legato.bench.closed_loop import StepShares, shares_between
from legato.bench.contestant import StepCounts
from legato.bench.serving.connection import server_root

PREFIXES = ("legato:", "vllm:")
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals since the server's start; a counter that it does not have is absent."""

    totals: Mapping[str, float] = field(default_factory=dict)
    """Name without prefix -> total over all labels."""
    accepted_per_position: Mapping[int, float] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    """'stage mode' -> steps."""

    def since(self, before: "Counters", name: str) -> float:
        """Return how much a counter grew."""
        return self.totals.get(name, 0.0) - before.totals.get(name, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How drafts fared."""

    drafts: int
    """Runs of drafts that were judged."""
    length: float
    """Tokens per run, the one that the target gives included."""
    share: float
    """Of the drafts, how many stood."""
    per_position: tuple[float, ...]
    """Share of runs whose draft at each position stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """What a server tells of a run; None where it does not count it, or nothing happened."""

    acceptance: Acceptance | None = None
    shares: StepShares | None = None
    prefix_hit_share: float | None = None
    """Of the prompts' tokens, found in the prefix cache."""
    preemptions: int | None = None


def read_counters(base_url: str, api_key: str | None) -> Counters | None:
    """Return the counters of the server at ``base_url``; None where it has none, or does not answer in time."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        root = server_root(base_url)
        url = f"{root}".rstrip("/") + "/metrics"
        response = httpx.get(url, headers=headers, timeout=TIMEOUT_S, verify=root.scheme == "https")
        return parse_counters(response.text) if response.is_success else None
    except (httpx.HTTPError, ValueError):  # the parser's for text that is no metrics
        return None


def parse_counters(text: str) -> Counters:
    """Return the counters in Prometheus' text format. Raises ValueError for another format."""
    totals: defaultdict[str, float] = defaultdict(float)
    positions: defaultdict[int, float] = defaultdict(float)
    steps: defaultdict[str, int] = defaultdict(int)
    for family in text_string_to_metric_families(text):
        prefix = next((each for each in PREFIXES if family.name.startswith(each)), None)
        if prefix is None or family.type != "counter":
            continue
        name = family.name.removeprefix(prefix)
        for sample in family.samples:
            if not sample.name.endswith("_total"):
                continue  # when the counter was created
            totals[name] += sample.value
            if name.endswith("_accepted_tokens_per_pos"):
                positions[int(sample.labels["position"])] += sample.value
            elif name == "graph_steps":
                steps[f"{sample.labels['stage']} {sample.labels['mode']}"] += int(sample.value)
    return Counters(totals=dict(totals), accepted_per_position=dict(positions), steps=dict(steps))


def server_figures(before: Counters | None, after: Counters | None, *, seconds: float) -> ServerFigures:
    """Return what happened between two readings, ``seconds`` apart."""
    if before is None or after is None:
        return ServerFigures()
    queries, hits = (after.since(before, f"prefix_cache_{name}") for name in ("queries", "hits"))
    return ServerFigures(
        acceptance=_acceptance(before, after),
        shares=_shares(before, after, seconds),
        prefix_hit_share=hits / queries if queries else None,
        preemptions=int(after.since(before, "num_preemptions")) if "num_preemptions" in after.totals else None,
    )


def _acceptance(before: Counters, after: Counters) -> Acceptance | None:
    drafts, tokens, accepted = (
        after.since(before, f"spec_decode_num_{name}") for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if not drafts:
        return None
    positions = [
        (after.accepted_per_position[position] - before.accepted_per_position.get(position, 0.0)) / drafts
        for position in sorted(after.accepted_per_position)
    ]
    return Acceptance(
        drafts=int(drafts),
        length=1 + accepted / drafts,
        share=accepted / tokens if tokens else 0.0,
        per_position=tuple(positions),
    )


def _shares(before: Counters, after: Counters, seconds: float) -> StepShares | None:
    """Return how steps ran. Tokens computed: prompts but for what the cache had, tokens fed back, and drafts."""
    prompt, generated, hits, drafted = (
        after.since(before, name)
        for name in ("prompt_tokens", "generation_tokens", "prefix_cache_hits", "spec_decode_num_draft_tokens")
    )
    accepted = after.since(before, "spec_decode_num_accepted_tokens")
    first, last = (
        StepCounts(steps=one.steps, padding_tokens=int(one.totals.get("graph_padding_tokens", 0)))
        for one in (before, after)
    )
    if sum(after.steps.values()) == sum(before.steps.values()):
        return None
    return shares_between(first, last, int(prompt - hits + generated - accepted + drafted), seconds)
