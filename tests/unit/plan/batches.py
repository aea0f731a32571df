"""Scheduled requests for planner tests, made by hand and by the real scheduler."""

from collections.abc import Iterator, Sequence

from legato.config.engine import CacheConfig, SchedulerConfig
from legato.flow.request import Request
from legato.flow.sampler_variant import variant_of
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import ScheduledBatch, ScheduledRequest
from legato.flow.step_output import RequestStep, StepOutput
from legato.kvcache.spec import FullAttentionSpec, LayerGroup
from legato.scheduler.scheduler import Scheduler

GREEDY = SamplingParams(temperature=0.0)


def decode(row: int, *, width: int = 1, computed: int = 10, **changes: object) -> ScheduledRequest:
    return _request(row, width, computed, is_decode=True, num_output_tokens=1, **changes)


def prefill(row: int, query_len: int, *, computed: int = 0, **changes: object) -> ScheduledRequest:
    return _request(row, query_len, computed, is_decode=False, **changes)


def _request(row: int, query_len: int, computed: int, **changes: object) -> ScheduledRequest:
    fields: dict[str, object] = {
        "request_id": f"request {row}",
        "row": row,
        "num_computed_tokens": computed,
        "token_ids": (7,) * query_len,
        "samples": True,
        "num_output_tokens": 0,
        "params": GREEDY,
    }
    fields |= changes
    return ScheduledRequest(sampler=variant_of(fields["params"], fields["num_output_tokens"]), **fields)


def batch(*requests: ScheduledRequest) -> ScheduledBatch:
    return ScheduledBatch(step=1, requests=requests, released_rows=(), admissions=(), block_appends=())


class Load:
    """A real scheduler, fed with requests and with made-up tokens."""

    def __init__(
        self,
        prompt_lens: Sequence[int],
        *,
        params: Sequence[SamplingParams] = (GREEDY,),
        max_tokens: int = 5,
        num_blocks: int = 33,
        max_num_seqs: int = 4,
        max_num_batched_tokens: int = 16,
        prefix_caching: bool = False,
        num_drafts: int | None = None,
    ) -> None:
        group = LayerGroup(name="full", layers=(0,), spec=FullAttentionSpec(num_kv_heads=1, head_dim=4))
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_model_len=64,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                policy="fcfs",
                max_queue=100,
            ),
            CacheConfig(block_size=4, num_blocks=num_blocks, prefix_caching=prefix_caching),
            (group,),
            num_drafts=num_drafts,
        )
        for index, prompt_len in enumerate(prompt_lens):
            self.scheduler.add(
                Request(
                    request_id=str(index),
                    prompt_token_ids=(index % 50,) * prompt_len,
                    params=params[index % len(params)],
                    seed=0,
                    stop_token_ids=frozenset(),
                    max_tokens=max_tokens,
                    arrival=float(index),
                )
            )

    def batches(self) -> Iterator[ScheduledBatch]:
        """Yield each step's batch until all requests have ended."""
        while self.scheduler.has_work:
            scheduled = self.scheduler.schedule()
            assert scheduled is not None
            yield scheduled
            steps = tuple(
                RequestStep(
                    request_id=request.request_id,
                    # Of drafts that may stand, as many do as the step's number says.
                    token_ids=(3,) * (1 + scheduled.step % (1 + request.num_drafts)) if request.samples else (),
                )
                for request in scheduled.requests
            )
            self.scheduler.commit(scheduled, StepOutput(step=scheduled.step, requests=steps))
