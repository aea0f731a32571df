"""Batches that attention kernels are checked and timed on. Owns shapes and random data; knows no backend."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import DeviceFacts
from legato.kvcache.spec import FullAttentionSpec, SlidingWindowSpec
from legato.kvcache.storage import LayerCache

COLD_BYTES = 256 << 20
MAX_CALLS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch; requests are (query_len, seq_len)."""

    name: str
    requests: tuple[tuple[int, int], ...]
    uniform: bool = False
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16
    dtype: str = "bfloat16"
    window: int | None = None

    @property
    def layer(self) -> AttentionLayer:
        """The layer as a model declares it."""
        return AttentionLayer(
            index=0,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            window=self.window,
        )

    @property
    def spec(self) -> FullAttentionSpec:
        """What the layer keeps."""
        if self.window is None:
            return FullAttentionSpec(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)
        return SlidingWindowSpec(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, window=self.window)

    @property
    def kv_bytes(self) -> int:
        """Keys and values that a call reads."""
        width = 2 * self.num_kv_heads * self.head_dim * getattr(torch, self.dtype).itemsize
        return sum(seq_len for _, seq_len in self.requests) * width

    @property
    def flops(self) -> float:
        """Multiplications and additions that causality leaves."""
        pairs = sum(query_len * (seq_len - (query_len - 1) / 2) for query_len, seq_len in self.requests)
        return 4 * pairs * self.num_heads * self.head_dim

    @property
    def max_model_len(self) -> int:
        """Longest sequence that the block table holds."""
        return max(8192, *(seq_len for _, seq_len in self.requests))

    def setup(self, facts: DeviceFacts) -> AttentionSetup:
        """Return what a backend is asked to serve."""
        hidden = self.num_heads * self.head_dim
        model = ModelConfig(
            architecture="LlamaForCausalLM",
            vocab_size=8,
            hidden_size=hidden,
            intermediate_size=hidden,
            num_layers=1,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_model_len,
            rms_norm_eps=1e-5,
            rope=RopeConfig(),
        )
        return AttentionSetup(
            model=model,
            device=facts,
            dtype=self.dtype,
            block_size=self.block_size,
            max_model_len=self.max_model_len,
            max_num_seqs=len(self.requests),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Device tensors of a case."""

    case: Case
    query: torch.Tensor  # [num_tokens, num_heads, head_dim]
    cache: LayerCache  # this step's keys and values included
    metadata: AttentionMetadata
    out: torch.Tensor  # [num_tokens, num_heads, head_dim]


def uniform(batch: int, context: int, query_len: int, **fields: Any) -> Case:
    """Return a decode of ``batch`` requests of ``context`` tokens."""
    name = f"decode {batch} x {context}, query length {query_len}"
    return Case(**{"name": name, "requests": ((query_len, context),) * batch, "uniform": True} | fields)


DECODE_ROWS = [
    uniform(1, 1024, 1),
    uniform(1, 1024, 4),
    uniform(1, 4096, 1),
    uniform(1, 4096, 4),
    uniform(8, 1024, 1),
    uniform(32, 1024, 1),
    uniform(32, 1024, 4),
    uniform(32, 1024, 8),
    uniform(64, 384, 1),
    uniform(128, 2048, 1),
    uniform(128, 2048, 4),
    uniform(256, 384, 1),
    Case(
        name="decode 32 x 64..4094, query length 1",
        requests=tuple((1, 64 + 130 * (index * 7 % 32)) for index in range(32)),
        uniform=True,
    ),
    uniform(64, 384, 1, num_heads=9, num_kv_heads=3, head_dim=64, name="decode 64 x 384, 9 heads of 64"),
]
MIXED_ROWS = [
    Case(name="prefill 4 x 1024", requests=((1024, 1024),) * 4),
    Case(name="prefill 1 x 8192", requests=((8192, 8192),)),
    Case(name="chunk 2048 after 6144", requests=((2048, 8192),)),
    Case(name="chunk 512 with 31 decodes of 1024", requests=((512, 1024),) + ((1, 1024),) * 31),
]


def check_cases() -> Iterator[Case]:
    """Yield what each backend must compute: rows of the tables, widths, heads, blocks, dtypes, windows, lengths."""
    yield from (row for row in DECODE_ROWS + MIXED_ROWS if row.name != "prefill 1 x 8192")
    mixed = ((1, 700), (130, 130), (9, 300), (1, 1), (64, 500), (4, 40))
    for width in (2, 3, 5, 6, 7, 8, 12, 16):
        requests = ((width, width), (width, 333), (width, 1000))
        yield Case(name=f"width {width}", requests=requests, uniform=True)
    for heads, kv_heads in ((8, 8), (6, 3), (9, 3), (10, 2), (14, 2), (16, 2), (64, 1)):
        yield Case(name=f"heads {heads}/{kv_heads}, mixed", requests=mixed, num_heads=heads, num_kv_heads=kv_heads)
        decode = ((1, 1), (1, 129), (1, 800))
        yield Case(
            name=f"heads {heads}/{kv_heads}", requests=decode, uniform=True, num_heads=heads, num_kv_heads=kv_heads
        )
    small = {"num_heads": 8, "num_kv_heads": 2}
    for head_dim in (64, 96, 128, 256):
        for dtype in ("float32", "float16", "bfloat16"):
            shape = small | {"head_dim": head_dim, "dtype": dtype}
            yield Case(name=f"head size {head_dim} {dtype}, mixed", requests=mixed, **shape)
            yield uniform(3, 517, 4, name=f"head size {head_dim} {dtype}, width 4", **shape)
    for block_size in (8, 32, 64, 128, 256):
        yield Case(name=f"block size {block_size}, mixed", requests=mixed, block_size=block_size, **small)
        yield uniform(3, 517, 1, name=f"block size {block_size}", block_size=block_size, **small)
    for window in (1, 100, 1024):
        yield Case(name=f"window {window}, mixed", requests=mixed, window=window, **small)
        yield uniform(3, 1500, 3, name=f"window {window}, width 3", window=window, **small)
    yield uniform(2, 32_768, 1, name="32k tokens, decode", **small)
    yield Case(name="32k tokens, chunk", requests=((256, 32_768), (1, 20_001)), **small)


def draw(case: Case, device: torch.device) -> Batch:
    """Return random tensors; block 0 belongs to nobody."""
    dtype = getattr(torch, case.dtype)
    blocks_of = [-(-seq_len // case.block_size) for _, seq_len in case.requests]
    order = (torch.randperm(sum(blocks_of)) + 1).to(torch.int32)
    table = torch.zeros(len(case.requests), -(-case.max_model_len // case.block_size), dtype=torch.int32)
    stored, slots = [], []
    for index, ((query_len, seq_len), blocks) in enumerate(zip(case.requests, order.split(blocks_of), strict=True)):
        table[index, : len(blocks)] = blocks
        own = (blocks[:, None] * case.block_size + torch.arange(case.block_size)).flatten()[:seq_len].long()
        stored.append(own)
        slots.append(own[seq_len - query_len :])
    shape = (sum(blocks_of) + 1, case.block_size, case.num_kv_heads, case.head_dim)
    cache = LayerCache(
        key=torch.full(shape, float("nan"), dtype=dtype, device=device),
        value=torch.full(shape, float("nan"), dtype=dtype, device=device),
    )
    written = torch.cat(stored).to(device)
    for tensor in (cache.key, cache.value):
        tensor.flatten(0, 1)[written] = torch.randn(len(written), *shape[2:], dtype=dtype, device=device)
    query_lens = [query_len for query_len, _ in case.requests]
    heads = torch.randn(
        sum(query_lens), case.num_heads + 2 * case.num_kv_heads, case.head_dim, dtype=dtype, device=device
    )
    query = heads[:, : case.num_heads]
    metadata = AttentionMetadata(
        query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32).to(device),
        seq_lens=torch.tensor([seq_len for _, seq_len in case.requests], dtype=torch.int32, device=device),
        block_table=table.to(device),
        slot_mapping=torch.cat(slots).to(device),
        num_tokens=sum(query_lens),
        num_reqs=len(query_lens),
        query_len=query_lens[0] if case.uniform else None,
        max_query_len=max(query_lens),
        key_ints={},
    )
    out = torch.full(query.shape, float("nan"), dtype=dtype, device=device)
    return Batch(case=case, query=query, cache=cache, metadata=metadata, out=out)


def cold_batches(case: Case, device: torch.device) -> list[Batch]:
    """Return the same batch over distinct caches."""
    first = draw(case, device)
    copies = min(MAX_CALLS, max(2, -(-COLD_BYTES // case.kv_bytes)))
    caches = [LayerCache(key=first.cache.key.clone(), value=first.cache.value.clone()) for _ in range(copies - 1)]
    return [first, *(replace(first, cache=cache) for cache in caches)]
