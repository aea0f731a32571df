"""Who brings FlashAttention-2 to this machine, and how each is called. Owns the providers and their order.

All take a paged cache, read lengths and block tables on the device, and derive grids and splits from the shapes they
are given and from an upper bound of the context, for which the block table's width stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch

from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.kvcache.storage import LayerCache

_PACKAGE = "flash_attn_2_cuda"
_VLLM_LIBRARY = "vllm_flash_attn/_vllm_fa2_C.abi3.so"
_LIBRARY_SPLITS = 0
"""The library chooses, from the padded batch and the bound of the context."""


class Routines(Protocol):
    """One provider's two routines; shapes as in :meth:`AttentionBackend.forward`."""

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend a batch of any query lengths."""
        ...

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Attend a batch in which every request has ``width`` query tokens."""
        ...


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


class LibraryRoutines:
    """The two C++ entry points of the flash-attn package, which vLLM's library has too.

    Decode packs the heads that share a key head into rows of one tile, as long as each request has one token and no
    window, and splits the context over multiprocessors for any width.
    """

    def __init__(self, library: Any, *, varlen_splits: tuple[int, ...]) -> None:
        """Keep the entry points; ``varlen_splits`` is the argument that vLLM's library alone has."""
        self._varlen, self._decode = library.varlen_fwd, library.fwd_kvcache
        self._varlen_splits = varlen_splits

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Call ``varlen_fwd``. It takes one token at most to mean exactly one, so that its bound is never below two."""
        starts = metadata.query_start_loc
        self._varlen(
            query,
            cache.key,
            cache.value,
            out,
            starts,
            starts,  # of keys: not read where the next argument is given
            metadata.seq_lens,
            None,  # left padding
            metadata.block_table,
            None,  # ALiBi slopes
            max(2, metadata.max_query_len),
            _max_context(cache, metadata),
            0.0,  # dropout
            layer.scale,
            False,  # zero the result first
            True,  # causal
            *_window(layer),
            0.0,  # soft cap
            False,  # return the weights
            *self._varlen_splits,
            None,  # random generator
        )

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Call ``fwd_kvcache``, which takes the bound of the context from the block table by itself."""
        shape = (metadata.num_reqs, width, *query.shape[1:])
        self._decode(
            query.view(shape),
            cache.key,
            cache.value,
            None,  # keys to append
            None,  # values to append
            metadata.seq_lens,
            None,  # rotary cosines
            None,  # rotary sines
            None,  # rows of the batch in the cache
            None,  # left padding
            metadata.block_table,
            None,  # ALiBi slopes
            out.view(shape),
            layer.scale,
            True,  # causal
            *_window(layer),
            0.0,  # soft cap
            False,  # interleaved rotary
            _LIBRARY_SPLITS,
        )


class TorchRoutines:
    """PyTorch's own varlen attention. One entry point, whose decode is what it does for one token of each request."""

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend without splits: parts of ragged batches are not put together rightly."""
        self._attend(layer, query, cache, metadata, out, max_query_len=max(2, metadata.max_query_len), num_splits=1)

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Attend, with grouped heads packed and the context split where each request has one token and no window."""
        packs = width == 1 and layer.num_heads > layer.num_kv_heads and layer.window is None
        splits = None if packs else 1
        self._attend(layer, query, cache, metadata, out, max_query_len=width, num_splits=splits)

    def _attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        *,
        max_query_len: int,
        num_splits: int | None,
    ) -> None:
        left, right = _window(layer)
        attended = torch.ops.aten._flash_attention_forward(
            query,
            cache.key,
            cache.value,
            metadata.query_start_loc,
            metadata.query_start_loc,  # of keys: not read where lengths are given
            max_query_len,
            _max_context(cache, metadata),
            0.0,  # dropout
            True,  # causal
            False,  # return the weights
            scale=layer.scale,
            window_size_left=left,
            window_size_right=right,
            seqused_k=metadata.seq_lens,
            block_table=metadata.block_table,
            num_splits=num_splits,
        )
        out.copy_(attended[0])  # its variant with a given result leaves it unwritten where heads are packed


def _window(layer: AttentionLayer) -> tuple[int, int]:
    """Return how many tokens a query sees before and after itself; -1: all that the causal mask leaves."""
    return (-1, -1) if layer.window is None else (layer.window - 1, 0)


def _max_context(cache: LayerCache, metadata: AttentionMetadata) -> int:
    return metadata.block_table.shape[1] * cache.key.shape[1]


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
        load=lambda: LibraryRoutines(torch.ops._vllm_fa2_C, varlen_splits=(_LIBRARY_SPLITS,)),
        only_major=8,
    ),
)
"""In order of preference. The fork that vLLM ships reads blocks of any multiple of 16."""
