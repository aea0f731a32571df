"""Paged attention against plain torch: in Triton's interpreter, or on a GPU where there is one."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

ON_GPU = torch.accelerator.is_available()
if not ON_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not ON_GPU and not triton.knobs.runtime.interpret:
    pytest.skip("there is no GPU, and Triton was imported without its interpreter", allow_module_level=True)
numpy = pytest.importorskip("numpy", reason="Triton's interpreter computes with numpy")
if not ON_GPU and tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 4):
    pytest.skip(f"Triton's interpreter cannot run loops with numpy {numpy.__version__}", allow_module_level=True)

from paged_attention_cases import PagedBatch, Shape, draw_batch, relative_error

from legato.attention.backends.triton import TritonBackend
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import DeviceFacts
from legato.kernels.paged_attention_configs import TileConfig
from legato.kernels.paged_attention_decode_triton import paged_attention_decode
from legato.kernels.paged_attention_varlen_triton import paged_attention_varlen
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kvcache.storage import LayerCache

pytestmark = [pytest.mark.gpu] if ON_GPU else []
DEVICE = "cuda" if ON_GPU else "cpu"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
UNTOUCHED = 7.0


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def varlen(batch: PagedBatch) -> torch.Tensor:
    out = torch.full(batch.query.shape, UNTOUCHED, dtype=batch.query.dtype, device=DEVICE)
    paged_attention_varlen(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        out,
        query_start_loc=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        max_query_len=int(batch.query_start_loc.diff().max()),
        scale=batch.scale,
        window=batch.shape.window,
    )
    return out


def workspace_for(batch: PagedBatch, num_splits: int) -> SplitWorkspace:
    rows = batch.query.shape[0] * batch.shape.num_heads * num_splits
    workspace = SplitWorkspace(rows, batch.shape.head_dim, torch.device(DEVICE))
    workspace.partial.fill_(float("nan"))
    workspace.log_sums.fill_(float("nan"))
    return workspace


def decode(
    batch: PagedBatch, num_splits: int, workspace: SplitWorkspace | None = None, config: TileConfig | None = None
) -> torch.Tensor:
    out = torch.full(batch.query.shape, UNTOUCHED, dtype=batch.query.dtype, device=DEVICE)
    paged_attention_decode(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        out,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        query_len=batch.num_tokens // len(batch.seq_lens),
        scale=batch.scale,
        window=batch.shape.window,
        num_splits=num_splits,
        workspace=workspace or workspace_for(batch, num_splits),
        config=config,
    )
    return out


SHAPES = [
    Shape(),
    Shape(group=1, num_kv_heads=1),
    Shape(group=3, head_dim=96),
    Shape(group=7, num_kv_heads=1, block_size=8),
    Shape(group=8, num_kv_heads=1, head_dim=128, block_size=32),
    Shape(head_dim=256, num_kv_heads=1, block_size=64),
    Shape(dtype=torch.float16),
    Shape(dtype=torch.float16, head_dim=128, group=4),
    Shape(window=1),
    Shape(window=20, group=3),
    Shape(window=1000),
    Shape(block_size=1),
    Shape(head_dim=8, block_size=5),
]
if ON_GPU:
    SHAPES += [
        Shape(dtype=torch.bfloat16, head_dim=head_dim, group=group, window=window)
        for head_dim in (64, 96, 128, 256)
        for group in (1, 4, 8)
        for window in (None, 50)
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_mix_of_query_lengths_equals_the_reference(shape: Shape) -> None:
    batch = draw_batch(shape, [5, 1, 0, 40, 1], [5, 70, 0, 90, 1], padded_tokens=3, device=DEVICE)
    out = varlen(batch)
    assert relative_error(out[:-3], batch.expected()[:-3]) < TOLERANCE[shape.dtype]
    assert (out[-3:] == UNTOUCHED).all()


@pytest.mark.parametrize(("query_len", "num_splits"), [(1, 3), (4, 1)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_decode_equals_the_reference_whatever_its_splits(shape: Shape, query_len: int, num_splits: int) -> None:
    batch = draw_batch(shape, [query_len] * 3, [query_len, 33, 200], device=DEVICE)
    assert relative_error(decode(batch, num_splits), batch.expected()) < TOLERANCE[shape.dtype]


@pytest.mark.parametrize("query_len", [2, 7, 16])
def test_every_width_of_draft_verification_equals_the_reference(query_len: int) -> None:
    batch = draw_batch(Shape(group=4), [query_len] * 2, [query_len, 150], device=DEVICE)
    assert relative_error(decode(batch, 2), batch.expected()) < 1e-5


@pytest.mark.parametrize(("num_splits", "num_warps"), [(1, 1), (3, 1), (1, 4), (3, 2)])
@pytest.mark.parametrize("shape", [Shape(group=3), Shape(window=20, group=3), Shape(head_dim=8, block_size=5)], ids=str)
def test_a_decode_may_ask_for_all_at_once_and_keep_its_warps_apart(
    shape: Shape, num_splits: int, num_warps: int
) -> None:
    batch = draw_batch(shape, [2] * 4, [2, 33, 200, 64], device=DEVICE)
    expected = batch.expected()
    batch.seq_lens[3], expected[6:] = 0, 0.0
    apart = num_warps > 1
    config = TileConfig(block_m=16, block_n=64, num_warps=num_warps, num_stages=3, at_once=True, warps_apart=apart)
    assert relative_error(decode(batch, num_splits, config=config), expected) < TOLERANCE[shape.dtype]


def test_a_join_of_more_shares_than_it_reads_at_once_equals_the_reference() -> None:
    batch = draw_batch(Shape(num_kv_heads=1), [1, 1], [1100, 200], device=DEVICE)
    assert relative_error(decode(batch, 16), batch.expected()) < 1e-5


def test_a_split_decode_can_be_repeated_and_the_next_batch_may_be_split_otherwise() -> None:
    batches = [draw_batch(Shape(), [1, 1], lens, device=DEVICE) for lens in ([300, 5], [70, 200])]
    workspace = workspace_for(batches[0], 4)
    first, second, again = (decode(batch, 4, workspace) for batch in (*batches, batches[0]))
    assert torch.equal(first, again)
    assert relative_error(second, batches[1].expected()) < 1e-5
    assert not workspace.counters.any()


def test_more_splits_than_tiles_of_keys_leave_the_rest_unread() -> None:
    batch = draw_batch(Shape(), [1, 1], [3, 200], device=DEVICE)
    assert relative_error(decode(batch, 8), batch.expected()) < 1e-5


@pytest.mark.parametrize("num_splits", [1, 2])
def test_a_request_without_keys_is_zero_and_harms_no_other(num_splits: int) -> None:
    batch = draw_batch(Shape(), [1, 1], [1, 40], device=DEVICE)
    expected = batch.expected()
    batch.seq_lens[0] = 0
    out = decode(batch, num_splits)
    assert (out[0] == 0).all()
    assert relative_error(out[1], expected[1]) < 1e-5


def test_more_requests_than_one_search_step_are_found() -> None:
    batch = draw_batch(
        Shape(num_kv_heads=1, group=1), [1] * 300, [1 + index % 5 for index in range(300)], device=DEVICE
    )
    assert relative_error(varlen(batch), batch.expected()) < 1e-5


def backend_for(shape: Shape) -> TritonBackend:
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8,
        hidden_size=64,
        intermediate_size=64,
        num_layers=1,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
    )
    return TritonBackend(
        AttentionSetup(
            model=model,
            device=DeviceFacts(kind=DEVICE, num_multiprocessors=4),
            dtype="float32",
            block_size=shape.block_size,
            max_model_len=512,
            max_num_seqs=4,
        )
    )


@pytest.mark.parametrize("query_len", [None, 1, 3, 20])
def test_the_backend_attends_whichever_kernel_it_takes(query_len: int | None) -> None:
    shape = Shape(window=30)
    query_lens = [9, 1] if query_len is None else [query_len] * 2
    batch = draw_batch(shape, query_lens, [200, 33], device=DEVICE)
    expected = batch.expected()
    cache = LayerCache(key=batch.key_cache, value=batch.value_cache)
    layer = AttentionLayer(
        index=0,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        scale=batch.scale,
        window=shape.window,
    )
    metadata = AttentionMetadata(
        query_start_loc=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        slot_mapping=torch.zeros(batch.num_tokens, dtype=torch.int64, device=DEVICE),  # stored already
        num_tokens=batch.num_tokens,
        num_reqs=2,
        query_len=query_len,
        max_query_len=max(query_lens),
        key_ints={},
    )
    out = torch.empty_like(batch.query, memory_format=torch.contiguous_format)
    backend_for(shape).forward(layer, batch.query, cache, metadata, out)
    assert relative_error(out, expected) < 1e-5
