"""FlashInfer (arXiv 2501.01005) over the paged cache. Owns the choice between its uniform decode and its prefill.

Uniform batches run on kernels that read lengths on the device, draft verification included, so that full graphs hold
them. Where there is no such kernel, batches of single tokens run on one whose plan is renewed before each replay. Every
other batch runs on kernels that are planned on the host too, between the segments of piecewise graphs.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch

from legato.attention.backends.flashinfer_decode import UniformDecode
from legato.attention.backends.flashinfer_planned_decode import PlannedDecode, planned_decode_bytes
from legato.attention.backends.flashinfer_prefill import PlannedPrefill, workspace_bytes
from legato.attention.backends.flashinfer_support import Installation, decide, takes, uniform_kernel
from legato.attention.compilation import CompileProgress
from legato.attention.first_calls import call_each_kernel
from legato.attention.graph_support import Support
from legato.attention.planning import PreparedBatch
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.environment import cuda_home
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache


class FlashInferBackend:
    """XQA or TRTLLM-gen for uniform batches where the GPU has them, planned decode and prefill for all else."""

    name: ClassVar[str] = "flashinfer"

    def __init__(self, setup: AttentionSetup) -> None:
        self._setup = setup
        model = setup.model
        kernel = uniform_kernel(setup, FullAttentionSpec(num_kv_heads=model.num_kv_heads, head_dim=model.head_dim))
        self._decode = None if kernel is None else UniformDecode(setup, kernel)
        plans_decode = kernel is None and setup.lengths_on_host
        # One layer uses it at a time, so that all planned kernels share it.
        size = max(workspace_bytes(setup), planned_decode_bytes(setup) if plans_decode else 0)
        workspace = torch.zeros(size, dtype=torch.uint8, device=torch.device(setup.device.kind))
        self._prefill = PlannedPrefill(setup, workspace)
        self._planned_decode = PlannedDecode(setup, workspace) if plans_decode else None

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return UNIFORM where a uniform kernel serves such layers, one token alone where they have a window on Hopper.

        Without such a kernel it is one token too, or NEVER where the host does not know the lengths that a plan needs.
        Raises BackendError where the prefill kernels cannot serve either.
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

    def plans(self, query_len: int | None) -> bool:
        """Return whether such batches are planned, and from lengths that the host knows."""
        windows = self._setup.model.sliding_windows or (None,)
        return self._setup.lengths_on_host and any(self._kernel(query_len, window) is None for window in windows)

    def prepare(self, batch: PreparedBatch) -> None:
        """Plan a batch of single tokens, or take the lengths of any other."""
        if batch.query_len == 1 and self._planned_decode is not None:
            self._planned_decode.prepare(batch)
        else:
            self._prefill.prepare(batch)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend; shapes as in the protocol."""
        width, planned = metadata.query_len, self._planned_decode
        decode = self._kernel(width, layer.window)
        if width is not None and decode is not None:
            decode.attend(layer, query, cache, metadata, width, out)
        elif width == 1 and planned is not None and planned.is_prepared(layer, metadata):
            planned.attend(layer, query, cache, metadata, out)
        else:
            self._prefill.attend(layer, query, cache, metadata, out)

    def _kernel(self, query_len: int | None, window: int | None) -> UniformDecode | None:
        """Return what serves such a batch without a plan, None: nothing does."""
        decode = self._decode
        if query_len is None or decode is None or not takes(decode.kernel, query_len=query_len, window=window):
            return None
        return decode


def has_cuda_compiler() -> bool:
    """Return whether there is an nvcc, looking where FlashInfer looks."""
    home = cuda_home() or "/usr/local/cuda"
    return shutil.which("nvcc") is not None or Path(home, "bin", "nvcc").exists()
