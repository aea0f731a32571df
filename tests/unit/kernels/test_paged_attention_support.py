"""Where the Triton backend says yes, and what it says where it cannot."""

import pytest

from legato.attention.backends import triton as backend
from legato.attention.graph_support import GraphSupport
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import CPU, DeviceFacts
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec, MLASpec

GPU = DeviceFacts(kind="cuda", capability=(9, 0), name="a GPU", num_multiprocessors=132)
SPEC = FullAttentionSpec(num_kv_heads=2, head_dim=64)


def setup_on(device: DeviceFacts) -> AttentionSetup:
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8,
        hidden_size=512,
        intermediate_size=64,
        num_layers=1,
        num_heads=8,
        num_kv_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
    )
    return AttentionSetup(
        model=model, device=device, dtype="bfloat16", block_size=16, max_model_len=512, max_num_seqs=4
    )


def installed(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    monkeypatch.setattr(backend, "find_spec", lambda name: object() if yes else None)


def test_a_gpu_with_triton_captures_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, True)
    support = backend.TritonBackend.support(setup_on(GPU), SPEC)
    assert support.level is GraphSupport.ALWAYS
    assert support.reason


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, False)
    with pytest.raises(BackendError, match="pip install triton"):
        backend.TritonBackend.support(setup_on(GPU), SPEC)


@pytest.mark.parametrize(
    ("device", "spec", "named"),
    [
        (CPU, SPEC, "device"),
        (GPU, MLASpec(latent_dim=8, rope_dim=4), "layers"),
        (GPU, FullAttentionSpec(num_kv_heads=2, head_dim=512), "head size"),
    ],
)
def test_every_refusal_says_why(device: DeviceFacts, spec: KVSpec, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, True)
    with pytest.raises(BackendError) as caught:
        backend.TritonBackend.support(setup_on(device), spec)
    assert list(caught.value.details) == [named]
