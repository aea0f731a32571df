"""FlashInfer (arXiv 2501.01005) over the paged cache. Owns the choice between its uniform decode and its prefill.

Uniform batches run on kernels that read lengths on the device, draft verification included, so that full graphs hold
them; every other batch runs on kernels that are planned on the host, between the segments of piecewise graphs.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch

from legato.attention.backends.flashinfer_decode import UniformDecode
from legato.attention.backends.flashinfer_prefill import PlannedPrefill
from legato.attention.backends.flashinfer_support import Installation, decide, takes, uniform_kernel
from legato.attention.compilation import CompileProgress
from legato.attention.first_calls import call_each_kernel
from legato.attention.graph_support import Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.environment import cuda_home
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache


class FlashInferBackend:
    """XQA or TRTLLM-gen for uniform batches where the GPU has them, planned prefill for everything else."""

    name: ClassVar[str] = "flashinfer"

    def __init__(self, setup: AttentionSetup) -> None:
        self._setup = setup
        model = setup.model
        kernel = uniform_kernel(setup, FullAttentionSpec(num_kv_heads=model.num_kv_heads, head_dim=model.head_dim))
        self._decode = None if kernel is None else UniformDecode(setup, kernel)
        self._prefill = PlannedPrefill(setup)

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return UNIFORM where a uniform kernel serves such layers, one token alone where they have a window on Hopper.

        Without such a kernel the level is NEVER; raises BackendError where the prefill kernels cannot serve either.
        """
        installation = Installation(package=find_spec("flashinfer") is not None, compiler=has_cuda_compiler())
        return decide(setup, spec, installation)

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: splits follow from the padded batch and the block table's width, which never changes."""
        return ()

    def compile_kernels(self, widths: tuple[int, ...], progress: CompileProgress) -> None:
        """Call each kernel once, which compiles it: seconds each for the first time on a machine."""
        call_each_kernel(self, self._setup, widths, progress)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend; shapes as in the protocol."""
        width, decode = metadata.query_len, self._decode
        if width is not None and decode is not None and takes(decode.kernel, query_len=width, window=layer.window):
            decode.attend(layer, query, cache, metadata, width, out)
        else:
            self._prefill.attend(layer, query, cache, metadata, out)


def has_cuda_compiler() -> bool:
    """Return whether there is an nvcc, looking where FlashInfer looks."""
    home = cuda_home() or "/usr/local/cuda"
    return shutil.which("nvcc") is not None or Path(home, "bin", "nvcc").exists()
