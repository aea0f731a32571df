"""Counts of a running engine at one moment. Plain data: it crosses the process border and feeds metrics."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Totals since start, and the state now."""

    num_running: int = 0
    num_waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    prefix_cache_queries: int = 0
    """Prompt tokens looked up."""
    prefix_cache_hits: int = 0
    """Prompt tokens found."""
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    spec_decode_drafts: int = 0
    """Rounds in which a request's drafts were judged."""
    spec_decode_draft_tokens: int = 0
    spec_decode_accepted_tokens: int = 0
    """Drafts that stood."""
    spec_decode_accepted_per_position: tuple[int, ...] = ()
    """[drafts of a round] how often the first, second, … draft stood."""
    spec_decode_num_speculative_tokens: int | None = None
    """Drafts of each decode in the latest step; None: there is no drafter."""
    spec_decode_speed_up: float | None = None
    """Times as fast as plain decoding since start, by measured costs; None: they were not measured."""
    graph_steps: dict[str, int] = field(default_factory=dict)
    """'stage mode' -> steps."""
    graph_fallbacks: dict[str, int] = field(default_factory=dict)
    """'stage reason' -> steps."""
    graph_replays: dict[str, int] = field(default_factory=dict)
    """Key, written out -> replays."""
    graph_padding_tokens: int = 0
    graph_capture_seconds: float = 0.0
    graph_bytes: int = 0

    @property
    def acceptance_length(self) -> float | None:
        """Tokens that a round with drafts brought in the mean, the target's own among them; None: there was none."""
        rounds = self.spec_decode_drafts
        return 1 + self.spec_decode_accepted_tokens / rounds if rounds else None

    @property
    def acceptance_rates(self) -> tuple[float, ...]:
        """[drafts of a round] share of rounds in which the first, second, … draft stood."""
        rounds = self.spec_decode_drafts
        return tuple(count / rounds for count in self.spec_decode_accepted_per_position) if rounds else ()
