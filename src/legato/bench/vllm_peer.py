"""The peer: vLLM in processes of its own, with its defaults but no prefix cache. Owns how it is built and timed."""

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from legato.bench.contestant import DraftCounts, NewTokens, Prompts, Timing
from legato.bench.subject import Subject
from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy
from legato.loading.source import ModelSource, WeightFormat, resolve_model
from legato.results.rows_file import model_name

_BACKENDS = {"flashinfer": "FLASHINFER", "triton": "TRITON_ATTN", "flash_attn_3": "FLASH_ATTN"}
"""Ours -> its name; any other: its own choice."""
_DRAFTS = "vllm:spec_decode_num_"


class VllmPeer:
    """An ``LLM`` of vLLM over the same model, limits and share of memory; eager where Legato's policy is ``none``.

    Where both engines live on one GPU during the measurement, the share must be under a half.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        dtype: str,
        max_model_len: int | None,
        max_num_seqs: int | None,
        eager: bool = False,
        tells_drafts: bool = False,
    ) -> None:
        """``tells_drafts``: it counts its drafts, which takes it some time in every step."""
        vllm = import_vllm()
        source = resolve_model(options.model, options.load_format)
        self.name = f"vllm {vllm.__version__}"
        self.subject = Subject(
            engine="vllm",
            version=vllm.__version__,
            model=model_name(options.model),
            dtype=dtype,
            backend=options.attention_backend if options.attention_backend.lower() in _BACKENDS else None,
            policy=str(GraphPolicy.NONE) if eager else None,
        )
        self._params = vllm.SamplingParams
        self._deltas = vllm.sampling_params.RequestOutputKind.DELTA
        self._tells_drafts = tells_drafts
        self._unpacked = TemporaryDirectory(prefix="legato-peer-")  # as long as the engine, which may read it again
        backend = _BACKENDS.get(options.attention_backend.lower())
        self._llm = vllm.LLM(
            model=self._folder(source, dtype),
            load_format="dummy" if source.format is WeightFormat.DUMMY else "auto",
            skip_tokenizer_init=True,
            dtype=dtype,
            max_model_len=max_model_len,
            gpu_memory_utilization=options.gpu_memory_utilization,
            enable_prefix_caching=False,
            enforce_eager=eager,
            disable_log_stats=not tells_drafts,
            **({} if max_num_seqs is None else {"max_num_seqs": max_num_seqs}),
            **({} if backend is None else {"attention_backend": backend}),
            **peer_speculation(options.speculative_config, backend),
        )

    @classmethod
    def like(cls, options: EngineOptions, config: EngineConfig, *, tells_drafts: bool = False) -> "VllmPeer":
        """Return the peer of an engine with this configuration."""
        return cls(
            options,
            dtype=config.dtype,
            max_model_len=config.scheduler.max_model_len,
            max_num_seqs=config.scheduler.max_num_seqs,
            eager=config.graph_policy == GraphPolicy.NONE,
            tells_drafts=tells_drafts,
        )

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate greedily, once for the first token alone and once in full.

        Its ``generate`` returns finished requests only, which costs it the least; it tells no time in between.
        """
        first_token_s, _ = self.generate_once(prompts, 1)
        total_s, outputs = self.generate_once(prompts, output_len)
        token_ids = tuple(tuple(output.outputs[0].token_ids) for output in outputs)
        return Timing(first_token_s=first_token_s, total_s=total_s, token_ids=token_ids)

    def generate_once(self, prompts: Prompts, output_len: int) -> tuple[float, list[Any]]:
        """Return the seconds of one call of ``generate``, and its outputs."""
        params = self._params(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False)
        started = time.perf_counter()
        outputs = self._llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False)
        return time.perf_counter() - started, outputs

    def add(self, request_id: str, prompt: tuple[int, ...], output_len: int, end_token_ids: frozenset[int]) -> None:
        """Begin one greedy request, whose new tokens are returned as they come."""
        params = self._params(
            temperature=0,
            max_tokens=output_len,
            ignore_eos=True,
            stop_token_ids=sorted(end_token_ids),
            detokenize=False,
            output_kind=self._deltas,
        )
        self._llm.llm_engine.add_request(request_id, {"prompt_token_ids": list(prompt)}, params)

    def step(self) -> Sequence[NewTokens]:
        """Wait for the engine's next outputs."""
        return [
            NewTokens(
                request_id=output.request_id,
                token_ids=output.outputs[0].token_ids,
                finished=output.finished,
            )
            for output in self._llm.llm_engine.step()
        ]

    def counts(self) -> None:
        """Return nothing: no record is kept."""

    def drafts(self) -> DraftCounts:
        """Return its own counts, where it was built to keep them."""
        metrics = self._llm.get_metrics() if self._tells_drafts else []
        values = {metric.name: metric for metric in metrics if metric.name.startswith(_DRAFTS)}
        if not values:
            return DraftCounts()
        return DraftCounts(
            num_judged=values[f"{_DRAFTS}drafts"].value,
            stood=tuple(map(int, values[f"{_DRAFTS}accepted_tokens_per_pos"].values)),
        )

    def _folder(self, source: ModelSource, dtype: str) -> str:
        """Return where it loads the model from: it reads no GGUF."""
        if not source.is_gguf:
            return str(source.path)
        from legato.bench.unpacked_model import unpack

        unpack(source, dtype, Path(self._unpacked.name))
        return self._unpacked.name


def peer_speculation(text: str | None, backend: str | None) -> dict[str, Any]:
    """Return the drafter as its engine takes it: the same keys. Raises ConfigError for what it does not have."""
    if text is None:
        return {}
    settings: dict[str, Any] = json.loads(text)
    settings.pop("load_format", None)  # it loads a drafter as it loads the target
    if settings.get("num_speculative_tokens") == "auto":
        raise ConfigError(
            "the peer has one number of drafts",
            {"requested": '--peer vllm with "num_speculative_tokens": "auto"', "options": "a number"},
        )
    if backend is not None and "model" in settings:
        settings["attention_backend"] = backend  # else its drafter takes another
    return {"speculative_config": settings}


def require_vllm() -> None:
    """Raise ConfigError where vLLM is not installed; importing it takes many seconds."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "the peer is not installed",
            {"requested": "--peer vllm", "found": "there is no module vllm", "options": "pip install vllm"},
        )


def import_vllm() -> Any:
    """Return vLLM's module. Raises ConfigError where it is not installed."""
    require_vllm()
    import vllm  # type: ignore[import-not-found]

    return vllm
