"""The peer: vLLM in a process of its own, with its defaults but no prefix cache. Owns how it is built and timed."""

import time
from collections.abc import Mapping
from typing import Any

from legato.bench.contestant import Prompts, Timing
from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.errors import ConfigError
from legato.loading.source import WeightFormat, resolve_model


class VllmPeer:
    """An ``LLM`` of vLLM over the same model, limits and share of memory.

    Both engines live on one GPU during the measurement, so that the share must be under a half.
    """

    def __init__(self, options: EngineOptions, config: EngineConfig) -> None:
        try:
            import vllm  # type: ignore[import-not-found]
        except ImportError as error:
            raise ConfigError(
                "the peer is not installed", {"requested": "--peer vllm", "found": error, "options": "pip install vllm"}
            ) from error
        source = resolve_model(options.model, options.load_format)
        self.name = f"vllm {vllm.__version__}"
        self._params = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=str(source.path),
            load_format="dummy" if source.format is WeightFormat.DUMMY else "auto",
            skip_tokenizer_init=True,
            dtype=config.dtype,
            max_model_len=config.scheduler.max_model_len,
            max_num_seqs=config.scheduler.max_num_seqs,
            gpu_memory_utilization=options.gpu_memory_utilization,
            enable_prefix_caching=False,
        )

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate greedily, once for the first token alone and once in full: vLLM tells no time in between."""
        first_token_s, _ = self._timed(prompts, 1)
        total_s, outputs = self._timed(prompts, output_len)
        token_ids = tuple(tuple(output.outputs[0].token_ids) for output in outputs)
        return Timing(first_token_s=first_token_s, total_s=total_s, token_ids=token_ids)

    def graph_steps(self) -> Mapping[str, int]:
        """Return nothing: no record is kept."""
        return {}

    def _timed(self, prompts: Prompts, output_len: int) -> tuple[float, list[Any]]:
        params = self._params(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False)
        started = time.perf_counter()
        outputs = self._llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False)
        return time.perf_counter() - started, outputs
