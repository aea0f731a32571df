"""The engine's configuration after resolution. Owns values that are final; nothing here is optional by accident."""

from dataclasses import dataclass

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice that Legato made for the user: what was requested, what is given instead, and why."""

    subject: str
    requested: str
    given: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.requested} -> {self.given} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV cache's size and behaviour."""

    block_size: int
    num_blocks: int
    """Blocks in the pool, the null block included."""
    prefix_caching: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The limits within which batches are formed."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    policy: str
    """``fcfs`` or ``priority``."""
    max_queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything a running engine was built with."""

    model_name: str
    served_model_name: str
    model: ModelConfig
    dtype: str
    device: str
    cache: CacheConfig
    scheduler: SchedulerConfig
    overlap: bool
    """Whether each step is launched before the tokens of the last one are read."""
    attention_backend: str
    graph_policy: str
    graph_sizes: tuple[int, ...] | None
    graph_strict: bool
    compile: str
    """What generates the code between attention calls: ``none`` or ``inductor``."""
    max_logprobs: int
    seed: int
    decisions: tuple[Decision, ...]
    speculative: SpeculativeConfig | None = None
    """The drafter; None: each step of a request brings one token."""
