"""The peer: transformers' own ``generate`` on the same weights in the same data type. Owns how that model is built.

A folder is loaded by transformers itself. A GGUF file is dequantised by Legato and put into a model of transformers,
which would otherwise need a further package.
"""

import time
from typing import Any

import torch
import transformers

from legato.bench.contestant import Prompts, Timing
from legato.bench.subject import Subject
from legato.bench.unpacked_model import transformers_config
from legato.errors import ConfigError
from legato.loading.model_config import read_model_config
from legato.loading.source import ModelSource, WeightFormat, resolve_model
from legato.loading.weights import stored_tensors
from legato.results.rows_file import model_name


class _FirstLogits(transformers.LogitsProcessor):  # type: ignore[misc]
    """Reads the clock when the first logits are there; changes nothing."""

    def __init__(self) -> None:
        self.seen: float | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.seen is None:
            if scores.device.type != "cpu":
                torch.accelerator.synchronize(scores.device)
            self.seen = time.perf_counter()
        return scores


class TransformersPeer:
    """A model of transformers with its default attention, driven by ``generate``."""

    def __init__(self, model: str, load_format: str, dtype: str, device: str) -> None:
        self.name = "transformers"
        self.subject = Subject(
            engine="transformers", version=transformers.__version__, model=model_name(model), dtype=dtype
        )
        source = resolve_model(model, load_format)
        self._device = torch.device(device)
        self._model = _build(source, getattr(torch, dtype)).to(self._device).eval()
        self._model.generation_config = transformers.GenerationConfig(pad_token_id=0)

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate greedily. The first token counts as there when its logits are."""
        first = _FirstLogits()
        started = time.perf_counter()
        input_ids = torch.tensor(prompts, device=self._device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                do_sample=False,
                max_new_tokens=output_len,
                logits_processor=transformers.LogitsProcessorList([first]),
            )
        tokens = output[:, input_ids.shape[1] :].tolist()
        assert first.seen is not None, "generate made no step"
        return Timing(
            first_token_s=first.seen - started,
            total_s=time.perf_counter() - started,
            token_ids=tuple(map(tuple, tokens)),
        )

    def counts(self) -> None:
        """Return nothing: no record is kept."""


def _build(source: ModelSource, dtype: torch.dtype) -> Any:
    """Return the model of transformers. Raises ConfigError for random weights: both would draw their own."""
    if source.format is WeightFormat.DUMMY:
        raise ConfigError(
            "transformers would draw random weights of its own",
            {"requested": "--load-format dummy --peer transformers", "options": "real weights | --peer none"},
        )
    if not source.is_gguf:
        return transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=dtype)
    config = read_model_config(source)
    model = transformers.AutoModelForCausalLM.from_config(transformers_config(config), dtype=dtype)
    weights = {tensor.name: tensor.load().to(dtype) for tensor in stored_tensors(source, config)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    left_over = set(missing) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    assert not left_over and not unexpected, f"names do not match: {left_over} {unexpected}"
    return model
