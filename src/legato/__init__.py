"""Legato: large language models served as CUDA graphs, with proof of which graph ran."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato.engine.llm import LLM
    from legato.flow.guide import Guide
    from legato.flow.sampling_params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Guide", "SamplingParams", "__version__"]

_LAZY = {
    "LLM": "legato.engine.llm",
    "Guide": "legato.flow.guide",
    "SamplingParams": "legato.flow.sampling_params",
}
"""Imported on first use, so that ``import legato`` and the command line's help do not load torch."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
