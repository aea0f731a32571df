"""Who brings FlashAttention-2 to this machine. Owns the providers, their order, and why one cannot serve."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch

from legato.attention.backends.flash_attn_2_routines import (
    LIBRARY_SPLITS,
    LibraryRoutines,
    Routines,
    TorchRoutines,
)
from legato.attention.setup import AttentionSetup

_PACKAGE = "flash_attn_2_cuda"
_VLLM_LIBRARY = "vllm_flash_attn/_vllm_fa2_C.abi3.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One source of the kernels."""

    name: str
    block_multiple: int
    """Blocks are whole multiples of so many tokens."""
    obstacle: Callable[[], str]
    """Why it is not there or cannot be loaded; empty: it is."""
    load: Callable[[], Routines]
    only_major: int | None = None
    """Of the one compute capability that it has machine code for, where the driver must compile for all others."""

    def compilation(self, capability: tuple[int, int]) -> str:
        """Return what its first calls wait for on such a GPU; empty: for nothing to be compiled."""
        if self.only_major in (None, capability[0]):
            return ""
        found = f"{self.name}'s library has code for sm{self.only_major}x alone"
        return f"{found}: the driver compiles it for this GPU, a minute or two, and keeps it for the next start"


def find_provider(setup: AttentionSetup) -> tuple[str | None, dict[str, str]]:
    """Return the name of the first provider that serves blocks of this size, and why those before it do not."""
    refused: dict[str, str] = {}
    for provider in PROVIDERS:
        multiple = provider.block_multiple
        wrong_blocks = f"blocks of {setup.block_size} tokens, not of a multiple of {multiple}"
        why = wrong_blocks if setup.block_size % multiple else provider.obstacle()
        if not why:
            return provider.name, refused
        refused[provider.name] = why
    return None, refused


def provider_named(name: str) -> Provider:
    """Return the provider of that name."""
    return next(provider for provider in PROVIDERS if provider.name == name)


def torch_obstacle() -> str:
    """Return why PyTorch's varlen attention cannot read a paged cache; empty: it can."""
    names = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}
    if not {"block_table", "seqused_k", "num_splits"} <= names:
        return f"the varlen attention of torch {torch.__version__} takes no block table"
    if not torch.backends.cuda.is_flash_attention_available():
        return f"torch {torch.__version__} is built without FlashAttention"
    return ""


@cache
def package_obstacle() -> str:
    """Return why the flash-attn package is not there or cannot be loaded; empty: it is there."""
    if find_spec(_PACKAGE) is None:
        return "flash-attn is not installed: pip install flash-attn"
    try:
        import_module(_PACKAGE)
    except ImportError as error:
        return f"{_PACKAGE} cannot be loaded: {error}"
    return ""


@cache
def vllm_obstacle() -> str:
    """Return why vLLM's FlashAttention-2 library is not there or cannot be loaded; empty: it is there."""
    spec = find_spec("vllm")  # vLLM itself is not imported
    folders = () if spec is None else spec.submodule_search_locations or ()
    library = next((path for folder in folders if (path := Path(folder, _VLLM_LIBRARY)).exists()), None)
    if library is None:
        return f"there is no vllm/{_VLLM_LIBRARY}: pip install vllm"
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        return f"{library} cannot be loaded: {error}"
    return ""


PROVIDERS = (
    Provider(name="PyTorch", block_multiple=256, obstacle=torch_obstacle, load=TorchRoutines),
    Provider(
        name="flash-attn",
        block_multiple=256,
        obstacle=package_obstacle,
        load=lambda: LibraryRoutines(import_module(_PACKAGE), varlen_splits=()),
    ),
    Provider(
        name="vLLM",
        block_multiple=16,
        obstacle=vllm_obstacle,
        load=lambda: LibraryRoutines(torch.ops._vllm_fa2_C, varlen_splits=(LIBRARY_SPLITS,)),
        only_major=8,
    ),
)
"""In order of preference. The fork that vLLM ships reads blocks of any multiple of 16."""
