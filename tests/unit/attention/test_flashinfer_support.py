"""What FlashInfer is trusted with, GPU by GPU; neither FlashInfer nor a GPU is needed."""

from typing import Any

import pytest

from legato.attention.backends.flashinfer import FlashInferBackend
from legato.attention.backends.flashinfer_support import Installation, UniformKernel, decide, takes, uniform_kernel
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import CPU, DeviceFacts
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec, MLASpec, SlidingWindowSpec

COMPLETE = Installation(package=True, compiler=True)
AMPERE, ADA, HOPPER, B200, B300, THOR, RTX_5090 = (
    DeviceFacts(kind="cuda", capability=capability, name="a GPU", num_multiprocessors=132)
    for capability in ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0))
)
TURING = DeviceFacts(kind="cuda", capability=(7, 5), name="a GPU")
NEVER, ONE, UNIFORM = GraphSupport.NEVER, GraphSupport.UNIFORM_SINGLE_TOKEN, GraphSupport.UNIFORM


def setup(device: DeviceFacts, **fields: Any) -> AttentionSetup:
    values = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bfloat16", "block_size": 16} | fields
    heads = {name: values[name] for name in ("num_heads", "num_kv_heads", "head_dim")}
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=10,
        hidden_size=64,
        intermediate_size=64,
        num_layers=1,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        **heads,
    )
    return AttentionSetup(
        model=model,
        device=device,
        dtype=values["dtype"],
        block_size=values["block_size"],
        max_model_len=4096,
        max_num_seqs=256,
        lengths_on_host=values.get("lengths_on_host", True),
    )


def spec_of(given: AttentionSetup, window: int | None = None) -> FullAttentionSpec:
    heads = {"num_kv_heads": given.model.num_kv_heads, "head_dim": given.model.head_dim}
    return FullAttentionSpec(**heads) if window is None else SlidingWindowSpec(**heads, window=window)


def support(given: AttentionSetup, window: int | None = None) -> Support:
    return decide(given, spec_of(given, window), COMPLETE)


@pytest.mark.parametrize(
    ("device", "fields", "window", "level", "reason"),
    [
        (HOPPER, {}, None, UNIFORM, "XQA takes several query tokens"),
        (RTX_5090, {}, None, UNIFORM, "XQA takes several query tokens"),
        (B200, {}, None, UNIFORM, "TRTLLM-gen takes several query tokens"),
        (B300, {}, None, UNIFORM, "TRTLLM-gen takes several query tokens"),
        (HOPPER, {"dtype": "float16", "head_dim": 64, "block_size": 128}, None, UNIFORM, "XQA"),
        (HOPPER, {"head_dim": 256, "num_heads": 14, "num_kv_heads": 2}, None, UNIFORM, "XQA"),
        (HOPPER, {}, 512, ONE, "one query token alone"),
        (RTX_5090, {}, 512, ONE, "one query token alone"),
        (B200, {}, 512, UNIFORM, "TRTLLM-gen"),
        (HOPPER, {"block_size": 8}, None, ONE, "no blocks of 8"),
        (HOPPER, {"block_size": 256}, None, ONE, "no blocks of 256"),
        (B200, {"block_size": 128}, None, ONE, "no blocks of 128"),
        (B200, {"head_dim": 256}, None, ONE, "no head size 256"),
        (HOPPER, {"num_heads": 64, "num_kv_heads": 1}, None, ONE, "32 query heads to a key head, not 64"),
        (B200, {"num_heads": 32, "num_kv_heads": 1}, None, ONE, "16 query heads to a key head, not 32"),
        (AMPERE, {}, None, ONE, "this is a GPU (sm80)"),
        (ADA, {}, None, ONE, "this is a GPU (sm89)"),
        (THOR, {}, None, ONE, "this is a GPU (sm110)"),
        (AMPERE, {}, 512, ONE, "single tokens are planned on the host before each replay"),
        (HOPPER, {"block_size": 8}, 512, ONE, "single tokens are planned on the host before each replay"),
        (AMPERE, {"lengths_on_host": False}, None, NEVER, "the host does not know behind drafts"),
        (HOPPER, {"block_size": 8, "lengths_on_host": False}, 512, NEVER, "the host does not know behind drafts"),
        (HOPPER, {"lengths_on_host": False}, None, UNIFORM, "XQA"),
    ],
)
def test_the_level_follows_from_gpu_heads_blocks_and_window(
    device: DeviceFacts, fields: dict[str, Any], window: int | None, level: GraphSupport, reason: str
) -> None:
    found = support(setup(device, **fields), window)
    assert found.level is level
    assert reason in found.reason
    assert "planned on the host" in found.reason


def test_everything_that_keeps_a_model_from_graphs_is_named_at_once() -> None:
    found = support(setup(HOPPER, block_size=8, num_heads=64, num_kv_heads=1))
    assert "blocks of 8" in found.reason
    assert "not 64" in found.reason


@pytest.mark.parametrize(
    ("device", "fields", "installation", "subject"),
    [
        (HOPPER, {}, Installation(package=False, compiler=True), "package"),
        (HOPPER, {}, Installation(package=True, compiler=False), "compiler"),
        (CPU, {}, COMPLETE, "device"),
        (TURING, {}, COMPLETE, "device"),
        (HOPPER, {"dtype": "float32"}, COMPLETE, "dtype"),
        (HOPPER, {"head_dim": 96}, COMPLETE, "head size"),
        (B200, {"head_dim": 80}, COMPLETE, "head size"),
    ],
)
def test_what_prefill_cannot_serve_is_refused(
    device: DeviceFacts, fields: dict[str, Any], installation: Installation, subject: str
) -> None:
    given = setup(device, **fields)
    with pytest.raises(BackendError) as caught:
        decide(given, spec_of(given), installation)
    assert set(caught.value.details) == {subject}


def test_a_cache_of_another_kind_is_refused() -> None:
    spec: KVSpec = MLASpec(latent_dim=512, rope_dim=64)
    with pytest.raises(BackendError) as caught:
        decide(setup(HOPPER), spec, COMPLETE)
    assert caught.value.details == {"layers": "MLASpec"}


def test_all_obstacles_are_reported_together() -> None:
    given = setup(CPU, dtype="float32", head_dim=96)
    with pytest.raises(BackendError) as caught:
        decide(given, spec_of(given), Installation(package=False, compiler=False))
    assert set(caught.value.details) == {"package", "compiler", "device", "dtype", "head size"}


def test_the_backend_asks_the_same_table() -> None:
    given = setup(CPU)
    with pytest.raises(BackendError) as caught:
        FlashInferBackend.support(given, spec_of(given))
    assert "device" in caught.value.details


@pytest.mark.parametrize("device", [HOPPER, RTX_5090, B200, AMPERE])
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("query_len", [1, 2, 8])
def test_graphs_without_plans_are_promised_exactly_for_what_a_kernel_takes(
    device: DeviceFacts, window: int | None, query_len: int
) -> None:
    given = setup(device, lengths_on_host=False)
    kernel = uniform_kernel(given, spec_of(given, window))
    served = kernel is not None and takes(kernel, query_len=query_len, window=window)
    assert served == (support(given, window).level >= (ONE if query_len == 1 else UNIFORM))


def test_a_mask_word_bounds_the_query_tokens() -> None:
    assert takes(UniformKernel.XQA, query_len=32, window=None)
    assert not takes(UniformKernel.XQA, query_len=33, window=None)
