"""Which FlashInfer kernels serve which model on which GPU. Owns the decision table; pure, it imports no FlashInfer.

Limits are those of flashinfer-python 0.6.13: XQA's from its kernel source, TRTLLM-gen's the ones it is tested with.
"""

from dataclasses import dataclass
from enum import StrEnum

from legato.attention.graph_support import GraphSupport, Support
from legato.attention.setup import AttentionSetup
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec, SlidingWindowSpec

MAX_QUERY_LEN = 32
"""Query tokens per request that one word of XQA's mask describes."""
_DTYPES = ("bfloat16", "float16")
_PREFILL_HEAD_DIMS = (64, 128, 256)
_MIN_CAPABILITY = (8, 0)


class UniformKernel(StrEnum):
    """Kernels that read lengths and block tables on the device, so that graphs can hold them."""

    XQA = "XQA"
    TRTLLM_GEN = "TRTLLM-gen"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLimits:
    """What one kind of uniform kernel takes."""

    block_sizes: tuple[int, ...]
    head_dims: tuple[int, ...]
    max_group: int
    """Query heads to a key head."""
    windows_of_many_tokens: bool
    """Whether a window is right for several query tokens."""


LIMITS = {
    # XQA with several tokens skips whole tiles before the window, but masks nothing inside the first tile it reads.
    UniformKernel.XQA: KernelLimits(
        block_sizes=(16, 32, 64, 128),
        head_dims=(64, 128, 256),
        max_group=32,
        windows_of_many_tokens=False,
    ),
    UniformKernel.TRTLLM_GEN: KernelLimits(
        block_sizes=(16, 32, 64),
        head_dims=(64, 128),
        max_group=16,
        windows_of_many_tokens=True,
    ),
}
_KERNELS = {9: UniformKernel.XQA, 10: UniformKernel.TRTLLM_GEN, 12: UniformKernel.XQA}
"""By the major number of the compute capability, as FlashInfer's own choice is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is on the machine."""

    package: bool
    """flashinfer can be imported."""
    compiler: bool
    """There is an nvcc: FlashInfer compiles a kernel when it is first used."""


def decide(setup: AttentionSetup, spec: KVSpec, installation: Installation) -> Support:
    """Return the level for layers that keep ``spec``, with the reason either way.

    Raises BackendError, with all reasons, where prefill cannot be served.
    """
    found = _prefill_obstacles(setup, spec, installation)
    if found or not isinstance(spec, FullAttentionSpec):
        raise BackendError("backend flashinfer cannot serve this model here", found)
    planned = "other batches are planned on the host, between the segments of piecewise graphs"
    obstacles = uniform_obstacles(setup, spec)
    if obstacles:
        return _planned_support(setup, f"no kernel reads lengths on the device: {'; '.join(obstacles)}", planned)
    kernel = _KERNELS[setup.device.capability[0]]
    if isinstance(spec, SlidingWindowSpec) and not LIMITS[kernel].windows_of_many_tokens:
        one = f"{kernel} keeps to a window with one query token alone"
        return Support(level=GraphSupport.UNIFORM_SINGLE_TOKEN, reason=f"{one}; {planned}")
    several = f"{kernel} takes several query tokens and reads lengths on the device"
    return Support(level=GraphSupport.UNIFORM, reason=f"{several}; {planned}")


def _planned_support(setup: AttentionSetup, why: str, others: str) -> Support:
    """Return how far decoding with a plan goes, which is renewed before each replay from lengths on the host."""
    if not setup.lengths_on_host:
        unknown = "a plan needs lengths, which the host does not know behind drafts"
        return Support(level=GraphSupport.NEVER, reason=f"{why}; {unknown}; {others}")
    one = "single tokens are planned on the host before each replay"
    return Support(level=GraphSupport.UNIFORM_SINGLE_TOKEN, reason=f"{why}; {one}; {others}")


def uniform_kernel(setup: AttentionSetup, spec: FullAttentionSpec) -> UniformKernel | None:
    """Return the kernel that serves uniform batches of such layers inside graphs, None: there is none."""
    return None if uniform_obstacles(setup, spec) else _KERNELS[setup.device.capability[0]]


def takes(kernel: UniformKernel, *, query_len: int, window: int | None) -> bool:
    """Return whether ``kernel`` computes ``query_len`` tokens of each request under ``window``."""
    if query_len == 1:
        return True
    return query_len <= MAX_QUERY_LEN and (window is None or LIMITS[kernel].windows_of_many_tokens)


def uniform_obstacles(setup: AttentionSetup, spec: FullAttentionSpec) -> tuple[str, ...]:
    """Return all reasons why no kernel serves uniform batches inside graphs; empty: one does."""
    kernel = _KERNELS.get(setup.device.capability[0])
    if kernel is None:
        return (f"XQA is for sm90 and sm120, TRTLLM-gen for sm100 and sm103, this is {setup.device}",)
    limits, group = LIMITS[kernel], setup.largest_group
    tests = {
        f"{kernel} has no blocks of {setup.block_size}, only {limits.block_sizes}": (
            setup.block_size not in limits.block_sizes
        ),
        f"{kernel} has no head size {spec.head_dim}, only {limits.head_dims}": spec.head_dim not in limits.head_dims,
        f"{kernel} takes {limits.max_group} query heads to a key head, not {group}": group > limits.max_group,
    }
    return tuple(reason for reason, stands in tests.items() if stands)


def _prefill_obstacles(setup: AttentionSetup, spec: KVSpec, installation: Installation) -> dict[str, str]:
    """Return what stands against the prefill kernels, by subject."""
    device = setup.device
    obstacles = {
        "package": "" if installation.package else "flashinfer is not installed: pip install 'legato[flashinfer]'",
        "compiler": ""
        if installation.compiler
        else "there is no nvcc to compile its kernels: install the CUDA toolkit and set CUDA_HOME",
        "device": ""
        if device.kind == "cuda" and device.capability >= _MIN_CAPABILITY
        else f"{device}; it needs sm{_MIN_CAPABILITY[0]}{_MIN_CAPABILITY[1]} or later",
        "dtype": "" if setup.dtype in _DTYPES else f"{setup.dtype}, not in {_DTYPES}",
        "layers": "" if isinstance(spec, FullAttentionSpec) else type(spec).__name__,
    }
    if isinstance(spec, FullAttentionSpec) and spec.head_dim not in _PREFILL_HEAD_DIMS:
        obstacles["head size"] = f"{spec.head_dim}, not in {_PREFILL_HEAD_DIMS}"
    return {subject: why for subject, why in obstacles.items() if why}
