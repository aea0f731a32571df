"""The frequencies of rotary embedding, and the ways to stretch them over longer texts. Formulas only."""

import math
from typing import Any

import torch

from legato.config.model import RopeConfig


def rotary_frequencies(rope: RopeConfig, rotary_dim: int) -> tuple[torch.Tensor, float]:
    """Return radians per position of each pair [rotary_dim / 2] float32, and the factor on cosines and sines.

    ``dynamic`` scaling leaves positions within the model's length as they are, and Legato serves no others.
    """
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.int64).to(torch.float32) / rotary_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.scaling["factor"], 1.0
    if rope.kind == "llama3":
        return _llama3(frequencies, rope.scaling), 1.0
    if rope.kind == "yarn":
        return _yarn(frequencies, rope, rotary_dim), _yarn_attention_factor(rope.scaling)
    return frequencies, 1.0


def _llama3(frequencies: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Llama 3.1 (arXiv 2407.21783): slow pairs are divided by ``factor``, fast ones kept, those between blended.

    A pair is fast if it turns at least ``high_freq_factor`` times in the original length, slow if at most
    ``low_freq_factor`` times.
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    blended: torch.Tensor = (1 - kept) * frequencies / scaling["factor"] + kept * frequencies
    return blended


def _yarn(frequencies: torch.Tensor, rope: RopeConfig, rotary_dim: int) -> torch.Tensor:
    """YaRN (arXiv 2309.00071, section 3.2): the same idea, with a ramp over pairs rather than over turns.

    Pairs that turn more than ``beta_fast`` times in the original length are kept, those that turn less than
    ``beta_slow`` times are divided by ``factor``.
    """
    original = rope.scaling["original_max_position_embeddings"]

    def pair_that_turns(times: float) -> float:
        return rotary_dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    first = pair_that_turns(rope.scaling.get("beta_fast") or 32)
    last = pair_that_turns(rope.scaling.get("beta_slow") or 1)
    if rope.scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary_dim - 1)
    pairs = torch.arange(rotary_dim // 2, dtype=torch.float32)
    divided = ((pairs - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    blended: torch.Tensor = divided * frequencies / rope.scaling["factor"] + (1 - divided) * frequencies
    return blended


def _yarn_attention_factor(scaling: dict[str, Any]) -> float:
    """Return YaRN's factor on queries and keys, which warms the softmax (arXiv 2309.00071, section 3.4)."""

    def warmth(weight: float) -> float:
        factor = scaling["factor"]
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return warmth(scaling["mscale"]) / warmth(scaling["mscale_all_dim"])
    return warmth(1.0)
