"""FlashAttention-2 (arXiv 2307.08691) over the paged cache. Owns the choice of routine and what makes it possible.

Uniform batches run on a decode routine that packs grouped heads and splits the context; every other batch runs on the
varlen routine, which does neither. No graph can hold both, so that mixed batches stay between segments.
"""

from typing import ClassVar

import torch

from legato.attention.backends.flash_attn_2_providers import find_provider, provider_named
from legato.attention.compilation import CompileProgress
from legato.attention.first_calls import call_each_kernel
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup, check_obstacles
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache

_DTYPES = ("bfloat16", "float16")
_MIN_CAPABILITY = (8, 0)
_MAX_HEAD_DIM = 256
_HEAD_DIM_MULTIPLE = 8


class FlashAttn2Backend:
    """Calls the first provider of the kernels that is installed and reads blocks of the cache's size."""

    name: ClassVar[str] = "flash_attn_2"

    def __init__(self, setup: AttentionSetup) -> None:
        self._setup = setup
        name, _ = find_provider(setup)
        assert name is not None, "support() has found one"
        self._provider = provider_named(name)
        self._routines = self._provider.load()

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return UNIFORM on GPUs from sm80, naming who brings the kernels; raise BackendError with all obstacles."""
        served = setup.device.kind == "cuda" and setup.device.capability >= _MIN_CAPABILITY
        head_dims = {model.head_dim for model in setup.models}
        fits = all(size <= _MAX_HEAD_DIM and size % _HEAD_DIM_MULTIPLE == 0 for size in head_dims)
        obstacles = {
            "device": "" if served else f"{setup.device}; it needs sm80 or later",
            "head size": ""
            if fits
            else f"{', '.join(map(str, head_dims))}, not a multiple of {_HEAD_DIM_MULTIPLE} up to {_MAX_HEAD_DIM}",
            "dtype": "" if setup.dtype in _DTYPES else f"{setup.dtype}, not in {_DTYPES}",
            "layers": "" if isinstance(spec, FullAttentionSpec) else type(spec).__name__,
        }
        provider, refused = find_provider(setup) if served else (None, {})
        check_obstacles(cls.name, obstacles | ({} if provider else refused))
        reason = f"mixed and decode routines differ: two sets of graphs; kernels of {provider}"
        return Support(level=GraphSupport.UNIFORM, reason=reason)

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: splits follow from the padded batch and the block table's width, which never changes."""
        return ()

    def compile_kernels(self, widths: tuple[int, ...], progress: CompileProgress) -> None:
        """Call each kernel once: one that the provider lacks for this GPU is found before capture.

        Where the driver compiles, it does so by modules: one for decode of one token, one for all causal batches.
        """
        waits_for = self._provider.compilation(self._setup.device.capability)
        call_each_kernel(self, self._setup, widths, progress, waits_for=waits_for)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend to what is in the cache; shapes as in the protocol."""
        if metadata.query_len is None:
            self._routines.mixed(layer, query, cache, metadata, out)
        else:
            self._routines.uniform(layer, query, cache, metadata, out, metadata.query_len)
