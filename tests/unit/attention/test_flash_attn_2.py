"""Who is asked for FlashAttention-2, with which arguments, and what is refused; it and a GPU are not needed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flash_attn_2_double import CALLS, operators, package
from paged_batch import HEADS, MIXED, Batch
from test_flashinfer_support import AMPERE, HOPPER, TURING, setup, spec_of

from legato.attention.backends import flash_attn_2_providers as providers
from legato.attention.backends.flash_attn_2 import FlashAttn2Backend
from legato.attention.graph_support import GraphSupport
from legato.device.facts import CPU, DeviceFacts
from legato.errors import BackendError
from legato.kvcache.spec import MLASpec

BLOCK_SIZES = {"PyTorch": 256, "flash-attn": 256, "vLLM": 16}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with operators(), torch.inference_mode():
        yield


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the providers of those names, and no others, be there."""
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", package())
    installed = tuple(
        replace(provider, obstacle=lambda there=provider.name in names: "" if there else "is not installed")
        for provider in providers.PROVIDERS
    )
    monkeypatch.setattr(providers, "PROVIDERS", installed)


def backend(monkeypatch: pytest.MonkeyPatch, provider: str) -> FlashAttn2Backend:
    install(monkeypatch, provider)
    return FlashAttn2Backend(setup(HOPPER, **HEADS, block_size=BLOCK_SIZES[provider]))


@pytest.mark.parametrize("provider", BLOCK_SIZES)
@pytest.mark.parametrize("window", [None, 1, 20])
def test_any_mix_is_given_to_the_varlen_routine(
    provider: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = backend(monkeypatch, provider)
    Batch(MIXED, num_padded=3, block_size=BLOCK_SIZES[provider]).run(served, window=window)
    assert CALLS[-1] == ("_flash_attention_forward" if provider == "PyTorch" else "varlen_fwd")


@pytest.mark.parametrize("provider", BLOCK_SIZES)
def test_a_mixed_batch_of_single_tokens_is_not_taken_for_a_uniform_one(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = backend(monkeypatch, provider)
    Batch(((1, 50), (1, 3)), num_padded=3, block_size=BLOCK_SIZES[provider]).run(served)


@pytest.mark.parametrize("provider", BLOCK_SIZES)
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_uniform_batches_are_given_to_the_decode_routine(
    provider: str, window: int | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = backend(monkeypatch, provider)
    requests = ((width, width), (width, 77), (width, 200))
    Batch(requests, uniform=True, num_padded=2, block_size=BLOCK_SIZES[provider]).run(served, window=window)
    assert CALLS[-1] == ("_flash_attention_forward" if provider == "PyTorch" else "fwd_kvcache")


@pytest.mark.parametrize(
    ("installed", "block_size", "chosen"),
    [
        (("PyTorch", "flash-attn", "vLLM"), 256, "PyTorch"),
        (("PyTorch", "flash-attn", "vLLM"), 16, "vLLM"),
        (("flash-attn", "vLLM"), 512, "flash-attn"),
        (("vLLM",), 256, "vLLM"),
    ],
)
def test_the_first_provider_that_is_there_and_reads_the_blocks_brings_the_kernels(
    installed: tuple[str, ...], block_size: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *installed)
    given = setup(AMPERE, block_size=block_size)
    support = FlashAttn2Backend.support(given, spec_of(given))
    assert support.level is GraphSupport.UNIFORM
    assert "mixed and decode routines differ" in support.reason
    assert support.reason.endswith(f"kernels of {chosen}")


def test_without_a_provider_each_ones_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    given = setup(HOPPER)
    with pytest.raises(BackendError) as caught:
        FlashAttn2Backend.support(given, spec_of(given))
    assert caught.value.details == {
        "PyTorch": "blocks of 16 tokens, not of a multiple of 256",
        "flash-attn": "blocks of 16 tokens, not of a multiple of 256",
        "vLLM": "is not installed",
    }


@pytest.mark.parametrize(
    ("device", "fields", "subject"),
    [
        (TURING, {}, "device"),
        (CPU, {}, "device"),
        (HOPPER, {"head_dim": 60}, "head size"),
        (HOPPER, {"head_dim": 264}, "head size"),
        (HOPPER, {"dtype": "float32"}, "dtype"),
    ],
)
def test_what_the_kernels_cannot_serve_is_refused(
    device: DeviceFacts, fields: dict[str, Any], subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "vLLM")
    given = setup(device, **fields)
    with pytest.raises(BackendError) as caught:
        FlashAttn2Backend.support(given, spec_of(given))
    assert set(caught.value.details) == {subject}


def test_a_cache_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "vLLM")
    with pytest.raises(BackendError) as caught:
        FlashAttn2Backend.support(setup(HOPPER), MLASpec(latent_dim=512, rope_dim=64))
    assert set(caught.value.details) == {"layers"}


def test_each_kernel_is_called_once_before_capture_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "vLLM")
    here = replace(HOPPER, kind="cpu")
    served = FlashAttn2Backend(setup(here, **HEADS, dtype="float32"))
    told: list[str] = []
    served.compile_kernels((1, 4), lambda done, total, kernel: told.append(kernel))
    assert [kernel.partition(" (")[0] for kernel in told] == ["query_len 1", "query_len 4", "mixed batches"]
    assert CALLS == ["fwd_kvcache", "fwd_kvcache", "varlen_fwd"]

    def fail(*arguments: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(served._routines, "_decode", fail)
    with pytest.raises(BackendError, match="query_len 1") as caught:
        served.compile_kernels((1,), lambda *progress: None)
    assert "no kernel image" in str(caught.value)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder that packages are imported from; what was found before is forgotten, and again afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (providers.package_obstacle, providers.vllm_obstacle)
    for found in caches:
        found.cache_clear()
    yield tmp_path
    for found in caches:
        found.cache_clear()


@pytest.mark.parametrize(
    ("provider", "capability", "waits"), [("vLLM", 9, True), ("vLLM", 8, False), ("flash-attn", 9, False)]
)
def test_the_user_is_told_where_the_driver_compiles_kernels_at_their_first_call(
    provider: str, capability: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, provider)
    here = replace({8: AMPERE, 9: HOPPER}[capability], kind="cpu")
    served = FlashAttn2Backend(setup(here, **HEADS, dtype="float32", block_size=BLOCK_SIZES[provider]))
    told: list[str] = []
    served.compile_kernels((1,), lambda done, total, kernel: told.append(kernel))
    assert len(told) == 2
    assert all(("the driver compiles" in kernel) is waits for kernel in told)


def test_a_library_that_cannot_be_loaded_is_named_with_the_linkers_reason(site: Path) -> None:
    assert "pip install vllm" in providers.vllm_obstacle()
    providers.vllm_obstacle.cache_clear()
    library = site / "vllm" / "vllm_flash_attn" / "_vllm_fa2_C.abi3.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    assert providers.vllm_obstacle().startswith(f"{library} cannot be loaded: ")


def test_a_package_that_does_not_fit_this_torch_is_named_with_its_reason(site: Path) -> None:
    assert "pip install flash-attn" in providers.package_obstacle()
    providers.package_obstacle.cache_clear()
    (site / "flash_attn_2_cuda.py").write_text("raise ImportError('undefined symbol: _ZN3c10')")
    assert providers.package_obstacle() == "flash_attn_2_cuda cannot be loaded: undefined symbol: _ZN3c10"


def test_a_torch_without_flash_attention_says_so() -> None:
    assert torch.__version__ in providers.torch_obstacle() or torch.backends.cuda.is_flash_attention_available()
