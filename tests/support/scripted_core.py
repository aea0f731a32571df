"""A deterministic engine core for tests of everything around it: each step gives every running request one token.

The next token is the last one plus one, within the model's vocabulary. Prompts with special first tokens misbehave.
"""

import os
import time

from legato.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from legato.config.model import ModelConfig, RopeConfig
from legato.config.options import EngineOptions
from legato.errors import QueueFullError, RequestError, WeightsError
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.step_output import TokenLogprobs
from legato.observability.reasons import Reason
from legato.observability.records import StepLog, StepRecord
from legato.observability.stats import EngineStats

VOCAB_SIZE = 300
MAX_MODEL_LEN = 256
MAX_NUM_SEQS = 16
CRASH_TOKEN = 298
"""A prompt that starts with it raises in the step."""
REFUSED_TOKEN = 297
"""A prompt that starts with it is refused by the core."""


def step_seconds() -> float:
    """Read how long a step takes."""
    return float(os.environ.get("SCRIPTED_STEP_S", "0.002"))


def build(options: EngineOptions, console: object = None) -> "ScriptedCore":
    """Build the core; a model named ``broken`` cannot be loaded."""
    if options.model == "broken":
        raise WeightsError("tensor lm_head is missing", {"file": "model.safetensors", "expected": "[300, 16]"})
    if options.model == "bug":
        raise ZeroDivisionError("a plain bug")
    return ScriptedCore(options)


class ScriptedCore:
    """Implements what the engine process needs of a core."""

    def __init__(self, options: EngineOptions) -> None:
        self.config = config(options)
        self.step_log = StepLog()
        self._requests: dict[str, Request] = {}
        self._outputs: dict[str, list[int]] = {}
        self._steps = self._generated = self._prompted = 0

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    def add(self, request: Request) -> None:
        if request.prompt_token_ids[0] == REFUSED_TOKEN:
            raise RequestError("the core refuses this prompt", {"found": f"token {REFUSED_TOKEN}"}, param="prompt")
        if len(self._requests) >= self.config.scheduler.max_queue:
            raise QueueFullError("the core is full")
        self._requests[request.request_id] = request
        self._outputs[request.request_id] = []

    def abort(self, request_ids) -> None:
        for request_id in request_ids:
            self._requests.pop(request_id, None)

    def step(self) -> list[RequestUpdate]:
        time.sleep(step_seconds())
        self._steps += 1
        running = list(self._requests.values())[:MAX_NUM_SEQS]
        self.step_log.add(record(self._steps, len(running)))
        return [self._advance(request) for request in running]

    def _advance(self, request: Request) -> RequestUpdate:
        if request.prompt_token_ids[0] == CRASH_TOKEN:
            raise RuntimeError("the step met the crash token")
        outputs = self._outputs[request.request_id]
        token = ([*request.prompt_token_ids, *outputs][-1] + 1) % VOCAB_SIZE
        first = not outputs
        outputs.append(token)
        self._generated += 1
        self._prompted += len(request.prompt_token_ids) if first else 0
        finish, stop = self._finish(request, outputs)
        if finish is not None:
            del self._requests[request.request_id]
        wanted, prompt_wanted = request.params.logprobs, request.params.prompt_logprobs
        return RequestUpdate(
            request_id=request.request_id,
            token_ids=(token,),
            logprobs=() if wanted is None else (logprobs(token, wanted),),
            prompt_logprobs=()
            if prompt_wanted is None or not first
            else tuple(logprobs(each, prompt_wanted) for each in request.prompt_token_ids[1:]),
            finish_reason=finish,
            stop_reason=stop,
        )

    def _finish(self, request: Request, outputs: list[int]) -> tuple[FinishReason | None, int | None]:
        if outputs[-1] in request.stop_token_ids and len(outputs) > request.params.min_tokens:
            return FinishReason.STOP, outputs[-1]
        return (FinishReason.LENGTH, None) if len(outputs) >= request.max_tokens else (None, None)

    def stats(self) -> EngineStats:
        running = min(len(self._requests), MAX_NUM_SEQS)
        return EngineStats(
            num_running=running,
            num_waiting=len(self._requests) - running,
            kv_blocks_used=running,
            kv_blocks_total=100,
            prompt_tokens=self._prompted,
            generation_tokens=self._generated,
            graph_steps={"target full": self._steps},
            graph_fallbacks={"target sampler_variant": 3},
            graph_replays={"full 16": self._steps},
            graph_padding_tokens=5,
            graph_capture_seconds=0.5,
            graph_bytes=4096,
        )

    def graph_report(self) -> dict:
        return {"policy": "full", "decisions": [], "catalog": [{"stage": "target", "mode": "full", "num_tokens": 16}]}


def record(step: int, num_reqs: int) -> StepRecord:
    return StepRecord(
        step=step,
        stage="target",
        requested="full",
        mode="full",
        reason=Reason.SAMPLER_VARIANT,
        key="full 16",
        num_reqs=num_reqs,
        num_tokens=num_reqs,
        num_tokens_padded=16,
        host_us=10.0,
        device_us=None,
    )


def logprobs(token: int, count: int) -> TokenLogprobs:
    top = tuple((token + each) % VOCAB_SIZE for each in range(count))
    return TokenLogprobs(
        token_id=token, logprob=-0.5, rank=1, top_ids=top, top_logprobs=tuple(-0.5 - each for each in range(count))
    )


def config(options: EngineOptions) -> EngineConfig:
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=2,
        head_dim=8,
        max_position_embeddings=MAX_MODEL_LEN,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        eos_token_ids=(0,),
    )
    return EngineConfig(
        model_name=options.model,
        served_model_name=options.served_model_name or options.model,
        model=model,
        dtype="float32",
        device="cpu",
        cache=CacheConfig(block_size=16, num_blocks=101, prefix_caching=True),
        scheduler=SchedulerConfig(
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=256,
            policy="fcfs",
            max_queue=options.max_queue,
        ),
        overlap=False,
        attention_backend="reference",
        graph_policy="full",
        graph_sizes=None,
        graph_strict=False,
        compile="none",
        max_logprobs=options.max_logprobs,
        seed=options.seed,
        decisions=(),
    )
