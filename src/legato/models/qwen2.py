"""Qwen2 and Qwen2.5 (arXiv 2407.10671).

Llama's layers with a bias on queries, keys and values and none on the output; where a window is used, it begins at some
layer. Both are facts of the configuration, so that nothing remains to compute differently.
"""

from legato.models.causal_lm import CausalLM
from legato.models.llama import LlamaAttention


class Qwen2ForCausalLM(CausalLM):
    """The dense Qwen2 family."""

    attention = LlamaAttention
