"""``legato serve`` with an engine that runs out of memory while it captures graphs of more than two tokens.

    python benchmarks/faulty_core.py SERVE OPTIONS

The CPU has no memory of its own that could run out in a capture; the error is raised where a GPU's allocator raises it.
"""

import functools
import sys

import torch
from rich.console import Console

from legato.cli.main import main
from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.models.llama import LlamaForCausalLM
from legato.models.registry import MODELS
from legato.server import lifecycle

LARGEST = 2


class CapturesDoNotFit(LlamaForCausalLM):
    """Runs out of memory in captures of more than LARGEST tokens, and only there."""

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: object) -> torch.Tensor:
        """Compute hidden states, if there is room."""
        in_capture = torch.overrides._len_torch_function_stack() > 0
        if in_capture and len(input_ids) > LARGEST:
            raise torch.OutOfMemoryError("out of memory: tried to allocate 2.00 GiB")
        return super().forward(input_ids, positions, context)


def build(options: EngineOptions, console: Console) -> EngineCore:
    """Build the engine, its model replaced."""
    MODELS["LlamaForCausalLM"] = "faulty_core:CapturesDoNotFit"
    return build_engine(options, console)


if __name__ == "__main__":
    lifecycle.serve = functools.partial(lifecycle.serve, factory="faulty_core:build")
    sys.argv[1:1] = ["serve"]
    main()
