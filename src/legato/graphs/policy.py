"""From what the user asks to what the backend can give. Owns the lowering rules and their reasons."""

from collections.abc import Mapping
from dataclasses import dataclass

from legato.attention.graph_support import GraphSupport, Support
from legato.config.engine import Decision
from legato.errors import GraphPolicyError
from legato.graphs.modes import GraphMode, GraphPolicy, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """What each class of batch runs as, next to what was asked for."""

    requested: GraphPolicy
    mixed: GraphMode
    uniform: Mapping[int, GraphMode]
    """Query length -> mode."""
    decisions: tuple[Decision, ...]
    drafts: GraphMode = GraphMode.EAGER
    """Of a drafter's passes over the requests, one token each."""

    def requested_mode(self, query_len: int | None, stage: Stage = Stage.TARGET) -> GraphMode:
        """Return what the user's policy gives a batch of this width, None: mixed."""
        uniform = query_len in self.uniform or stage is Stage.DRAFT
        return self.requested.uniform_mode if uniform else self.requested.mixed_mode

    def given_mode(self, query_len: int | None, stage: Stage = Stage.TARGET) -> GraphMode:
        """Return what the backend lets it have."""
        if stage is Stage.DRAFT:
            return self.drafts
        return self.mixed if query_len is None else self.uniform.get(query_len, self.mixed)


def resolve_policy(
    policy: GraphPolicy,
    support: Support,
    *,
    backend: str,
    widths: tuple[int, ...],
    strict: bool,
    drafts_attend: bool | None = None,
) -> ResolvedPolicy:
    """Lower each class of batch to the best mode that ``support`` allows, with a decision for each lowering.

    ``drafts_attend``: whether a drafter has attention layers of its own; None: there is no drafter.
    Raises GraphPolicyError, with all decisions, where ``strict`` and anything was lowered.
    """
    mixed = _lower(policy.mixed_mode, support, GraphSupport.ALWAYS)
    uniform = {width: _lower(policy.uniform_mode, support, _needed(width)) for width in widths}
    wanted = [("mixed batches", policy.mixed_mode, mixed, GraphSupport.ALWAYS)]
    wanted += [(f"query_len {w}", policy.uniform_mode, mode, _needed(w)) for w, mode in uniform.items()]
    drafts = GraphMode.EAGER
    if drafts_attend is not None:
        drafts = _lower(policy.uniform_mode, support, _needed(1)) if drafts_attend else policy.uniform_mode
        wanted.append(("drafts", policy.uniform_mode, drafts, _needed(1)))
    decisions = tuple(
        Decision(
            subject=f"graphs of {subject}",
            requested=str(asked),
            given=str(given),
            reason=f"{backend} is {support.level.name}, {needed.name} is needed: {support.reason}",
        )
        for subject, asked, given, needed in wanted
        if given < asked
    )
    if strict and decisions:
        raise GraphPolicyError(
            f"graph policy {policy} was required, but {backend} cannot give it",
            {
                "requested": f"--graph-policy {policy} --graph-strict",
                **{decision.subject: f"{decision.given} ({decision.reason})" for decision in decisions},
                "options": f"--graph-policy {_best_policy(mixed, uniform)} | another --attention-backend",
                "more": "legato inspect graphs",
            },
        )
    return ResolvedPolicy(requested=policy, mixed=mixed, uniform=uniform, decisions=decisions, drafts=drafts)


def _needed(width: int) -> GraphSupport:
    return GraphSupport.UNIFORM_SINGLE_TOKEN if width == 1 else GraphSupport.UNIFORM


def _lower(mode: GraphMode, support: Support, needed: GraphSupport) -> GraphMode:
    """Return ``mode``, or the next one that works: attention outside the graph always does."""
    return mode if mode is not GraphMode.FULL or support.level >= needed else GraphMode.PIECEWISE


def _best_policy(mixed: GraphMode, uniform: Mapping[int, GraphMode]) -> GraphPolicy:
    """Return the strictest policy that would have been granted."""
    if all(mode is GraphMode.FULL for mode in uniform.values()):
        return GraphPolicy.FULL_AND_PIECEWISE if mixed is not GraphMode.EAGER else GraphPolicy.FULL_DECODE_ONLY
    return GraphPolicy.PIECEWISE
