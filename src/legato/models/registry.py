"""The table of models: architecture, as config.json names it -> the class that computes it, imported when asked for.

To add a family: one file here, one line below, and what its config leaves unsaid in ``legato.loading.architectures``.
"""

from importlib import import_module

from legato.errors import UnsupportedModelError
from legato.models.causal_lm import CausalLM

MODELS = {
    "LlamaForCausalLM": "legato.models.llama:LlamaForCausalLM",
    "MistralForCausalLM": "legato.models.llama:LlamaForCausalLM",
    "Qwen2ForCausalLM": "legato.models.qwen2:Qwen2ForCausalLM",
    "Qwen3ForCausalLM": "legato.models.qwen3:Qwen3ForCausalLM",
}


def model_class(architecture: str) -> type[CausalLM]:
    """Return the class of ``architecture``. Raises UnsupportedModelError, listing those there are."""
    if architecture not in MODELS:
        options = ", ".join(MODELS)
        raise UnsupportedModelError(
            "this model's architecture is not supported", {"found": architecture, "options": options}
        )
    module, _, name = MODELS[architecture].partition(":")
    found: type[CausalLM] = getattr(import_module(module), name)
    return found
