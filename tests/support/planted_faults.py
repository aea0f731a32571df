"""Faults that a graph engine must catch, planted by implementing the real interfaces wrongly."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from legato.attention.backends.reference import ReferenceBackend
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionContext, AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.kvcache.spec import KVSpec
from legato.kvcache.storage import LayerCache
from legato.models.llama import LlamaForCausalLM
from legato.runner.buffers import InputBuffer


class FrozenHostValueBackend(ReferenceBackend):
    """Launches by the longest sequence, which the host knows, and does not declare it."""

    name: ClassVar[str] = "frozen_host_value"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        lens = (ctypes.c_int32 * metadata.num_reqs).from_address(metadata.seq_lens.data_ptr())
        scaled = replace(layer, scale=layer.scale * max(lens) / 16)
        super().forward(scaled, query, cache, metadata, out)


class HostReadingBackend(ReferenceBackend):
    """Asks for the longest sequence while it computes."""

    name: ClassVar[str] = "host_reading"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        assert metadata.seq_lens.max().item() >= 0
        super().forward(layer, query, cache, metadata, out)


class RebuiltBlockTableBackend(ReferenceBackend):
    """Builds its block table anew on the host, instead of reading it in place: a graph does not see it change."""

    name: ClassVar[str] = "rebuilt_block_table"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        rebuilt = torch.zeros(metadata.block_table.shape, dtype=torch.int32)
        ctypes.memmove(rebuilt.data_ptr(), metadata.block_table.data_ptr(), rebuilt.nbytes)
        super().forward(layer, query, cache, replace(metadata, block_table=rebuilt), out)


class HostReadingModel(LlamaForCausalLM):
    """Looks at its input on the host."""

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        assert input_ids.max().item() >= 0
        return super().forward(input_ids, positions, context)


def fill_without_padding(
    self: InputBuffer, values: Sequence[int] | np.ndarray, padded_len: int, pad_value: int | None = None
) -> None:
    """Leave in the padding what an earlier batch left there."""
    self.host_np[: len(values)] = values
    self.device[:padded_len].copy_(self.host[:padded_len])


def fill_by_rebuilding(
    self: InputBuffer, values: Sequence[int] | np.ndarray, padded_len: int, pad_value: int | None = None
) -> None:
    """Make a new tensor instead of writing to the one that graphs read."""
    self.host_np[: len(values)] = values
    self.host_np[len(values) : padded_len] = self.pad_value if pad_value is None else pad_value
    object.__setattr__(self, "device", self.host.clone())


class WrongBatchKernelBackend(ReferenceBackend):
    """From four decoding requests on, eager or not, layer 1 gives too much."""

    name: ClassVar[str] = "wrong_batch_kernel"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        super().forward(layer, query, cache, metadata, out)
        if layer.index == 1 and metadata.query_len == 1 and metadata.num_reqs >= 4:
            out.mul_(1.5)


class WrongDecodeKernelBackend(ReferenceBackend):
    """Layer 1 gives too much when it decodes, in graphs and eagerly."""

    name: ClassVar[str] = "wrong_decode_kernel"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        super().forward(layer, query, cache, metadata, out)
        if layer.index == 1 and metadata.query_len == 1:
            out.mul_(1.5)


class UniformOnlyBackend(ReferenceBackend):
    """No fault, but less support than a policy may ask for."""

    name: ClassVar[str] = "uniform_only"

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        return Support(level=GraphSupport.UNIFORM, reason="two routines")
