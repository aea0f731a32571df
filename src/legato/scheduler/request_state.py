"""How far one request has come. Owns its tokens and counts; decides nothing."""

import time
from dataclasses import dataclass, field

from legato.flow.request import Request
from legato.flow.sampler_variant import variant_of
from legato.graphs.modes import SamplerVariant
from legato.kvcache.block_table import BlockTable


@dataclass(slots=True, kw_only=True, eq=False)
class RequestState:
    """Mutable progress of one request, from ``add`` to its end."""

    request: Request
    order: tuple[float, ...]
    """Place in the order of service; smaller is earlier. Never changes, so a preempted request is first again."""
    table: BlockTable
    max_num_tokens: int
    """Most tokens of prompt and output that the request may have."""
    token_ids: list[int] = field(init=False)
    """Prompt, then output as far as it was committed."""
    num_prompt_tokens: int = field(init=False)
    sampler: SamplerVariant = field(init=False)
    """What its sampling needs from ``min_tokens`` generated tokens on."""
    early_sampler: SamplerVariant = field(init=False)
    """What it needs until then."""
    row: int = -1
    """Place in device state while running; -1: waiting."""
    num_computed_tokens: int = 0
    """Tokens whose keys and values exist once all scheduled steps have run. The device runs them in order, so that a
    later step may count on them; only what is told to others waits for the commit. Drafts that are not judged yet are
    counted as if they stood: the most that it can be."""
    num_pending_tokens: int = 0
    """Tokens that scheduled steps sample for certain and no commit has brought yet; at most 1 when a step is formed.
    They come even where the request is preempted meanwhile."""
    num_admitted_tokens: int = 0
    """Tokens that were known at the latest admission. Those that follow were generated in the present row."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache at the first admission."""
    num_prompt_logprobs: int = 0
    """Prompt tokens whose log-probabilities were delivered, the first token, which has none, not counted."""
    was_admitted: bool = False
    admitted: float | None = None
    """When the first admission was, in monotonic seconds, until the frontend has been told."""
    ended: bool = False

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        params = self.request.params
        self.sampler, self.early_sampler = variant_of(params, params.min_tokens), variant_of(params, 0)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and output, a pending one included, drafts that are not judged yet not."""
        return len(self.token_ids) + self.num_pending_tokens

    @property
    def is_ending(self) -> bool:
        """Whether the output ends with the pending token, whatever it turns out to be."""
        num_pending_tokens = self.num_pending_tokens
        return num_pending_tokens > 0 and len(self.token_ids) + num_pending_tokens >= self.max_num_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether the next token to compute was generated in the present row.

        A prompt's last token is not, nor is the last token of a recomputation: those are one-token prefills.
        """
        return self.num_computed_tokens >= self.num_admitted_tokens

    @property
    def may_reuse_prefix(self) -> bool:
        """Whether computed blocks will do: prompt log-probabilities need every prompt token to pass the model."""
        return self.request.params.prompt_logprobs is None or self.num_prompt_logprobs >= self.num_prompt_tokens - 1

    def prompt_token_ids_after(self, start: int, end: int) -> tuple[int, ...]:
        """Return the prompt tokens that follow tokens ``start`` to ``end``, if their log-probabilities are wanted."""
        if start >= self.num_prompt_tokens or self.request.params.prompt_logprobs is None:
            return ()
        return self.request.prompt_token_ids[start + 1 : end + 1]

    def admit(self, row: int, num_computed_tokens: int) -> None:
        """Take a row, with so many tokens computed already."""
        assert self.num_pending_tokens == 0, "admitted while a token of an earlier row is to come"
        self.row = row
        self.num_computed_tokens = num_computed_tokens
        self.num_admitted_tokens = len(self.token_ids)
        if not self.was_admitted:
            self.num_cached_tokens = num_computed_tokens
            self.was_admitted = True
            self.admitted = time.monotonic()

    def preempt(self) -> None:
        """Lose the row and all computed state; the tokens stay."""
        self.row = -1
        self.num_computed_tokens = 0
