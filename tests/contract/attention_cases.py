"""Paged attention problems with their answers: what every backend is given, and what it must give back."""

from dataclasses import dataclass, field

import torch
from dense_oracle import dense_attention

from legato.attention.graph_support import GraphSupport
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import DeviceFacts
from legato.kvcache.spec import FullAttentionSpec, SlidingWindowSpec
from legato.kvcache.storage import LayerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch; the keys and values of the first ``seq_len - query_len`` tokens are in the cache."""

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    uniform: bool = False
    num_kv_heads: int = 2
    group: int = 2
    head_dim: int = 64
    block_size: int = 16
    window: int | None = None
    num_padded: int = 1
    """Padded requests, and in a mixed batch as many padded tokens and two more."""

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group

    @property
    def width(self) -> int | None:
        return self.query_lens[0] if self.uniform else None

    @property
    def num_reqs(self) -> int:
        return len(self.query_lens) + self.num_padded

    @property
    def num_tokens(self) -> int:
        padded = self.num_padded * self.query_lens[0] if self.uniform else self.num_padded + 2
        return sum(self.query_lens) + padded

    @property
    def max_blocks(self) -> int:
        return -(-max(self.seq_lens) // self.block_size) + 1

    @property
    def num_blocks(self) -> int:
        return 3 + sum(-(-seq_len // self.block_size) for seq_len in self.seq_lens)

    @property
    def needed_level(self) -> GraphSupport:
        if not self.uniform:
            return GraphSupport.ALWAYS
        return GraphSupport.UNIFORM_SINGLE_TOKEN if self.query_lens[0] == 1 else GraphSupport.UNIFORM

    @property
    def spec(self) -> FullAttentionSpec:
        if self.window is None:
            return FullAttentionSpec(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)
        return SlidingWindowSpec(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, window=self.window)

    @property
    def layer(self) -> AttentionLayer:
        return AttentionLayer(
            index=0,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            window=self.window,
        )

    def setup(self, device: DeviceFacts, dtype: torch.dtype) -> AttentionSetup:
        hidden = self.num_heads * self.head_dim
        model = ModelConfig(
            architecture="LlamaForCausalLM",
            vocab_size=10,
            hidden_size=hidden,
            intermediate_size=hidden,
            num_layers=1,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_blocks * self.block_size,
            rms_norm_eps=1e-5,
            rope=RopeConfig(),
            sliding_windows=() if self.window is None else (self.window,),
        )
        return AttentionSetup(
            model=model,
            device=device,
            dtype=str(dtype).removeprefix("torch."),
            block_size=self.block_size,
            max_model_len=self.max_blocks * self.block_size,
            max_num_seqs=self.num_reqs,
        )

    def rotated(self) -> "Case":
        """The same batch shape with other lengths: requests change places, and but for the longest become shorter."""
        longest = max(self.seq_lens)
        pairs = [
            (query_len, seq_len if seq_len == longest else query_len + (seq_len - query_len) // 3)
            for query_len, seq_len in zip(self.query_lens, self.seq_lens, strict=True)
        ]
        pairs = pairs[1:] + pairs[:1]
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Case(**fields | {"query_lens": tuple(q for q, _ in pairs), "seq_lens": tuple(s for _, s in pairs)})


@dataclass(slots=True)
class Problem:
    """Device tensors of a case, at fixed addresses; :meth:`load` fills them with new data."""

    case: Case
    dtype: torch.dtype
    device: torch.device
    cache: LayerCache = field(init=False)
    metadata: AttentionMetadata = field(init=False)
    heads: torch.Tensor = field(init=False)
    out: torch.Tensor = field(init=False)
    expected: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        case, device = self.case, self.device
        shape = (case.num_blocks + 8, case.block_size, case.num_kv_heads, case.head_dim)
        self.cache = LayerCache(
            key=torch.zeros(shape, dtype=self.dtype, device=device),
            value=torch.zeros(shape, dtype=self.dtype, device=device),
        )
        # Query, key and value lie side by side, as one product gives them: tokens of the query lie apart.
        num_heads = case.num_heads + 2 * case.num_kv_heads
        self.heads = torch.zeros(case.num_tokens, num_heads, case.head_dim, dtype=self.dtype, device=device)
        self.out = torch.zeros(case.num_tokens, case.num_heads, case.head_dim, dtype=self.dtype, device=device)
        self.metadata = AttentionMetadata(
            query_start_loc=torch.zeros(case.num_reqs + 1, dtype=torch.int32, device=device),
            seq_lens=torch.zeros(case.num_reqs, dtype=torch.int32, device=device),
            block_table=torch.zeros(case.num_reqs, case.max_blocks, dtype=torch.int32, device=device),
            slot_mapping=torch.zeros(case.num_tokens, dtype=torch.int64, device=device),
            num_tokens=case.num_tokens,
            num_reqs=case.num_reqs,
            query_len=case.width,
            max_query_len=max(case.query_lens),
            key_ints={},
        )

    @property
    def query(self) -> torch.Tensor:
        return self.heads[:, : self.case.num_heads]

    def load(self, case: Case, seed: int) -> None:
        """Write a case of the same shape, this step's keys and values included.

        What is not a stored token of a request, or padding in the null block, is not a number.
        """
        random = torch.Generator().manual_seed(seed)
        self.cache.key.fill_(float("nan"))
        self.cache.value.fill_(float("nan"))
        self.out.fill_(float("nan"))
        heads = torch.randn(self.heads.shape, generator=random).to(self.dtype)
        free = (torch.randperm(self.cache.key.shape[0] - 1, generator=random) + 1).tolist()
        tables = torch.zeros(self.metadata.block_table.shape, dtype=torch.int32)
        slots, self.expected, first = [], [], 0
        for index, (query_len, seq_len) in enumerate(zip(case.query_lens, case.seq_lens, strict=True)):
            blocks = [free.pop() for _ in range(-(-seq_len // case.block_size))]
            tables[index, : len(blocks)] = torch.tensor(blocks)
            all_slots = [blocks[p // case.block_size] * case.block_size + p % case.block_size for p in range(seq_len)]
            computed = seq_len - query_len
            own = slice(first, first + query_len)
            query, key, value = heads[own].split((case.num_heads, case.num_kv_heads, case.num_kv_heads), dim=1)
            before = torch.randn(2, computed, *key.shape[1:], generator=random).to(self.dtype)
            stored = torch.tensor(all_slots[:computed], dtype=torch.int64, device=self.device)
            self.cache.key.flatten(0, 1)[stored] = before[0].to(self.device)
            self.cache.value.flatten(0, 1)[stored] = before[1].to(self.device)
            keys, values = torch.cat([before[0], key]), torch.cat([before[1], value])
            answer = dense_attention(query, keys, values, scale=case.layer.scale, window=case.window)
            self.expected.append(answer)
            slots += all_slots[computed:]
            first += query_len
        self.heads.copy_(heads)
        self._load_metadata(case, tables, slots)
        _, key, value = self.heads.split((case.num_heads, case.num_kv_heads, case.num_kv_heads), dim=1)
        self.cache.key.flatten(0, 1).index_copy_(0, self.metadata.slot_mapping, key)
        self.cache.value.flatten(0, 1).index_copy_(0, self.metadata.slot_mapping, value)

    def _load_metadata(self, case: Case, tables: torch.Tensor, slots: list[int]) -> None:
        """Write metadata, padded as the protocol says."""
        num_padded = case.num_tokens - len(slots)
        width = case.width
        query_lens = [*case.query_lens, *([width or 0] * case.num_padded)]
        seq_lens = [*case.seq_lens, *([width or 0] * case.num_padded)]
        padded_slots = [index % (width or 1) % case.block_size for index in range(num_padded)]
        starts = torch.tensor([0, *query_lens]).cumsum(0)
        self.metadata.query_start_loc.copy_(starts)
        self.metadata.seq_lens.copy_(torch.tensor(seq_lens))
        self.metadata.block_table.copy_(tables)
        self.metadata.slot_mapping.copy_(torch.tensor(slots + padded_slots))

    def check(self, atol: float) -> None:
        """Compare the real tokens with the oracle's."""
        got = self.out.cpu().double()
        first = 0
        for index, expected in enumerate(self.expected):
            own = got[first : first + len(expected)]
            assert own.isfinite().all(), f"request {index} read what is not its own"
            torch.testing.assert_close(own, expected, atol=atol, rtol=atol)
            first += len(expected)
