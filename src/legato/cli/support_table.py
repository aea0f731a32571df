"""What each attention backend declares for one typical model on some devices. Needs none of those devices."""

from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from unittest.mock import patch

from legato.attention.graph_support import Support
from legato.attention.protocol import AttentionBackend
from legato.attention.registry import BACKENDS, load_backend
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import CPU, DeviceFacts
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec

DEVICES = {
    "CPU": CPU,
    "Ampere": DeviceFacts(kind="cuda", capability=(8, 0), name="Ampere", num_multiprocessors=108),
    "Hopper": DeviceFacts(kind="cuda", capability=(9, 0), name="Hopper", num_multiprocessors=132),
}
"""Column title -> device."""
_LLAMA = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    max_position_embeddings=131_072,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
)


def support_rows() -> Iterator[tuple[str, ...]]:
    """Yield name, level on each device, and reasons of every backend in the registry; ``-`` where it cannot serve."""
    for name in BACKENDS:
        supports = [_support(load_backend(name), device) for device in DEVICES.values()]
        levels = [f"`{support.level.name}`" if support else "-" for support in supports]
        found = {support.reason: f"`{support.level.name}`" for support in supports if support}
        reasons = [reason if len(found) == 1 else f"{level}: {reason}" for reason, level in found.items()]
        yield f"`{name}`", *levels, ". ".join(reasons)


def _support(backend: type[AttentionBackend], device: DeviceFacts) -> Support | None:
    """Return the backend's support as if all it needs were installed, so that each machine generates the same."""
    setup = AttentionSetup(
        model=_LLAMA, device=device, dtype="bfloat16", block_size=16, max_model_len=8192, max_num_seqs=256
    )
    spec = FullAttentionSpec(num_kv_heads=_LLAMA.num_kv_heads, head_dim=_LLAMA.head_dim)
    found = {
        "find_spec": lambda name: ModuleSpec(name, None),
        "has_cuda_compiler": lambda: True,
        "find_provider": lambda setup: ("the package that is installed", {}),
    }
    installed = patch.dict(vars(import_module(backend.__module__)), found)
    with installed:
        try:
            return backend.support(setup, spec)
        except BackendError:
            return None
