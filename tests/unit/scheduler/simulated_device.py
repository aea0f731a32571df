"""A device in a few lines of Python: rows, block tables, paged memory, and a "model" whose tokens betray every mistake.

The key-value entry of a position is a digest of all tokens up to it, made from the entry before, read through the block
table. The next token is a digest of all entries. A wrong token, position, block or share changes the output.
"""

from dataclasses import dataclass, field

from legato.flow.request import Request
from legato.flow.sampler_variant import variant_of
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import PENDING, ScheduledBatch, ScheduledRequest
from legato.flow.step_output import RequestStep, StepOutput, TokenLogprobs
from legato.graphs.modes import SamplerVariant

VOCAB_SIZE = 13
MODULUS = 2**61 - 1
FALLEN = -1
"""The entry of a draft that did not stand: nobody may read it."""


def request(
    request_id: str,
    prompt: tuple[int, ...],
    *,
    max_tokens: int = 4,
    min_tokens: int = 0,
    stop_token_ids: frozenset[int] = frozenset(),
    prompt_logprobs: int | None = None,
    priority: int = 0,
    arrival: float = 0.0,
    group: str | None = None,
    user_stop_token_ids: tuple[int, ...] = (),
) -> Request:
    """A request with defaults for all that a test does not care about."""
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt,
        params=SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            prompt_logprobs=prompt_logprobs,
            stop_token_ids=user_stop_token_ids,
        ),
        seed=0,
        stop_token_ids=stop_token_ids,
        max_tokens=max_tokens,
        arrival=arrival,
        priority=priority,
        group=group,
    )


def entry(before: int, token_id: int) -> int:
    return (before * 1_000_003 + token_id * 7_919 + 1) % MODULUS


def next_token(entries: list[int]) -> int:
    return hash(tuple(entries)) % VOCAB_SIZE


def output_alone(request: Request, max_model_len: int) -> tuple[int, ...]:
    """The tokens that this request gives when nothing else exists."""
    entries: list[int] = []
    for token_id in request.prompt_token_ids:
        entries.append(entry(entries[-1] if entries else 0, token_id))
    output: list[int] = []
    while True:
        token_id = next_token(entries)
        output.append(token_id)
        stopped = token_id in request.stop_token_ids and len(output) > request.params.min_tokens
        if stopped or len(output) == request.max_tokens or len(entries) + 1 == max_model_len:
            return tuple(output)
        entries.append(entry(entries[-1], token_id))


@dataclass
class Row:
    request: Request
    token_ids: list[int]
    num_computed_tokens: int
    num_admitted_tokens: int
    block_ids: list[int] = field(default_factory=list)


class SimulatedDevice:
    """Executes batches, and refuses any that a real device could not execute."""

    def __init__(
        self,
        *,
        block_size: int,
        num_blocks: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int = 64,
        num_drafts: int | None = None,
    ) -> None:
        self.max_model_len = max_model_len
        self.num_drafts = num_drafts
        self.num_accepted = 0
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.rows: dict[int, Row] = {}
        self.memory: dict[tuple[int, int], int] = {}

    def execute(self, batch: ScheduledBatch) -> StepOutput:
        self.apply_row_changes(batch)
        assert 0 < batch.num_tokens <= self.max_num_batched_tokens
        assert len({scheduled.row for scheduled in batch.requests}) == len(batch.requests) <= self.max_num_seqs
        return StepOutput(step=batch.step, requests=tuple(self._run(scheduled) for scheduled in batch.requests))

    def apply_row_changes(self, batch: ScheduledBatch) -> None:
        for row in batch.released_rows:
            del self.rows[row]
        for admission in batch.admissions:
            assert 0 <= admission.row < self.max_num_seqs
            assert admission.row not in self.rows
            token_ids = [*admission.request.prompt_token_ids, *admission.output_token_ids]
            assert admission.num_computed_tokens < len(token_ids), "nothing left to compute"
            self.rows[admission.row] = Row(
                admission.request, token_ids, admission.num_computed_tokens, num_admitted_tokens=len(token_ids)
            )
        for append in batch.block_appends:
            block_ids = self.rows[append.row].block_ids
            assert append.start == len(block_ids)
            assert all(0 < block_id < self.num_blocks for block_id in append.block_ids), "the null block was handed out"
            block_ids += append.block_ids

    def _run(self, scheduled: ScheduledRequest) -> RequestStep:
        row = self.rows[scheduled.row]
        if self.num_drafts is not None and scheduled.is_decode:
            return self._run_round(row, scheduled, self.num_drafts)
        start, end = scheduled.num_computed_tokens, scheduled.seq_len
        num_prompt_tokens = len(row.request.prompt_token_ids)
        assert scheduled.request_id == row.request.request_id
        assert scheduled.params is row.request.params
        assert start == row.num_computed_tokens
        assert scheduled.query_len > 0
        token_ids = row.token_ids[start:end]
        # What a row generated itself the device knows, and is never told.
        assert list(scheduled.token_ids) == ([PENDING] if scheduled.is_decode else token_ids)
        assert scheduled.num_output_tokens == len(row.token_ids) - num_prompt_tokens
        assert scheduled.sampler is variant_of(row.request.params, scheduled.num_output_tokens)
        assert scheduled.is_decode == (start >= row.num_admitted_tokens)
        assert not scheduled.is_decode or scheduled.query_len == 1
        assert scheduled.samples == (end == len(row.token_ids))
        assert scheduled.next_token_id == (PENDING if scheduled.samples else row.token_ids[end])
        assert scheduled.num_drafts == 0
        for position, token_id in enumerate(token_ids, start):
            before = self._read(row, position - 1) if position > 0 else 0
            self.memory[self._slot(row, position)] = entry(before, token_id)
        row.num_computed_tokens = end
        new_tokens: tuple[int, ...] = ()
        if scheduled.samples:
            new_tokens = (next_token([self._read(row, position) for position in range(end)]),)
            row.token_ids += new_tokens
        return RequestStep(
            request_id=scheduled.request_id,
            token_ids=new_tokens,
            prompt_logprobs=self._prompt_logprobs(row.request, start, end),
        )

    def _run_round(self, row: Row, scheduled: ScheduledRequest, num_drafts: int) -> RequestStep:
        """Feed the next token and drafts, of which as many are right as a digest says."""
        request, num_prompt_tokens = row.request, len(row.request.prompt_token_ids)
        start, known = row.num_computed_tokens, len(row.token_ids)
        assert scheduled.request_id == request.request_id
        assert start >= row.num_admitted_tokens and known == start + 1
        assert scheduled.token_ids == (PENDING,) * (1 + num_drafts)
        assert scheduled.samples
        # The scheduler may not know yet what stood: it keeps between bounds.
        assert scheduled.num_computed_tokens >= start
        assert scheduled.num_output_tokens <= known - num_prompt_tokens
        variant = variant_of(request.params, scheduled.num_output_tokens)
        assert scheduled.sampler is variant
        assert scheduled.num_drafts == (0 if variant is SamplerVariant.GENERAL else num_drafts)
        last = min(num_prompt_tokens + request.max_tokens, self.max_model_len) - 2
        assert len(row.block_ids) * self.block_size > min(start, last) + num_drafts, "tokens met with the null block"
        num_accepted = hash((start, row.token_ids[-1])) % (scheduled.num_drafts + 1)
        for position in range(start, start + num_accepted + 1):
            if position // self.block_size >= len(row.block_ids):
                assert position > last, "a token that counts found no room"
                row.token_ids.append(0)
                continue
            self.memory[self._slot(row, position)] = entry(self._read(row, position - 1), row.token_ids[position])
            row.token_ids.append(next_token([self._read(row, before) for before in range(position + 1)]))
        for position in range(start + num_accepted + 1, start + num_drafts + 1):
            if position // self.block_size < len(row.block_ids):
                self.memory[self._slot(row, position)] = FALLEN
        row.num_computed_tokens = start + num_accepted + 1
        self.num_accepted += num_accepted
        return RequestStep(request_id=scheduled.request_id, token_ids=tuple(row.token_ids[known:]))

    def _prompt_logprobs(self, request: Request, start: int, end: int) -> tuple[TokenLogprobs, ...]:
        if request.params.prompt_logprobs is None:
            return ()
        return tuple(
            TokenLogprobs(token_id=token_id, logprob=-float(position), rank=1, top_ids=(), top_logprobs=())
            for position, token_id in enumerate(request.prompt_token_ids)
            if start < position <= end
        )

    def _slot(self, row: Row, position: int) -> tuple[int, int]:
        return row.block_ids[position // self.block_size], position % self.block_size

    def _read(self, row: Row, position: int) -> int:
        found = self.memory[self._slot(row, position)]
        assert found != FALLEN, "a draft that did not stand was taken for a token"
        return found
