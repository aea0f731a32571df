"""Compile the kernels of a decode step for a Hopper GPU, without one: run as a script, prints a line per kernel.

Launchers are called as they are, on tensors without memory; kernels are compiled and not launched.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from legato.kernels import (
    argmax_triton,
    early_start_triton,
    linear_triton,
    paged_attention_decode_triton,
    paired_norms_triton,
    rms_norm_triton,
    rotary_triton,
    row_state_triton,
    silu_mul_triton,
)
from legato.kernels.linear import Norm
from legato.kernels.linear_tilings import Tiling
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kernels.rotary import Rotation

META = torch.device("meta")
MODULES = (
    argmax_triton,
    linear_triton,
    paged_attention_decode_triton,
    paired_norms_triton,
    rms_norm_triton,
    rotary_triton,
    row_state_triton,
    silu_mul_triton,
)


class HopperDriver:
    """What compiling asks of a driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def product(rows: int, tiling: Tiling, *, normed: bool = False, gated: bool = False, added: bool = False) -> None:
    norm = Norm(empty(576), 1e-5) if normed else None
    weight = empty(1024 if gated else 512, 576)
    linear_triton.linear(empty(rows, 576), weight, None, empty(rows, 512), tiling, norm=norm, gated=gated, added=added)


def decode(num_splits: int) -> None:
    query, cache = empty(2, 8, 64), empty(10, 16, 2, 64)
    paged_attention_decode_triton.paged_attention_decode(
        query,
        cache,
        cache,
        query,
        seq_lens=empty(2, dtype=torch.int32),
        block_table=empty(2, 4, dtype=torch.int32),
        query_len=1,
        scale=0.125,
        window=None,
        num_splits=num_splits,
        workspace=SplitWorkspace(1024, 64, META),
    )


def rows_of(function: Callable[..., object], *last: Any) -> None:
    three = [empty(4, dtype=torch.int64) for _ in range(3)]
    function(*three, *last)


def rotate() -> None:
    rotation = Rotation(cos=empty(3, 1, 64), sin=empty(3, 1, 64))
    cache = empty(10, 16, 2, 64)
    rotary_triton.rotate_and_store(empty(3, 12, 64), rotation, cache, cache, empty(3, dtype=torch.int64))


def pair() -> None:
    norm, token_ids = Norm(empty(576), 1e-5), empty(3, dtype=torch.int64)
    paired_norms_triton.paired_norms(token_ids, empty(96, 576), norm, empty(3, 576), norm)


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "one row, norm and gate", lambda: product(1, Tiling(2, 1024, 4, 1), normed=True, gated=True)
    yield "few rows, norm and gate", lambda: product(8, Tiling(16, 64, 4, 4), normed=True, gated=True)
    yield "few rows, norm, split", lambda: product(8, Tiling(16, 64, 4, 4, splits=3), normed=True)
    yield "64 rows, added", lambda: product(64, Tiling(32, 64, 4, 4, block_rows=64), added=True)
    yield "decode, split", lambda: decode(4)
    yield "argmax", lambda: argmax_triton.argmax(empty(256, 128256))
    yield "inputs of a step", lambda: rows_of(row_state_triton.decode_inputs, empty(9, 4, dtype=torch.int32), 16)
    more = empty(9, dtype=torch.int64), empty(9, dtype=torch.int64)
    yield "norm", lambda: rms_norm_triton.rms_norm(empty(3, 576), empty(576), 1e-5)
    yield "token and state", pair
    yield "gate", lambda: silu_mul_triton.silu_mul(empty(3, 1024))
    yield "rotation", rotate
    yield "rows of a step", lambda: rows_of(row_state_triton.advance, *more, 8)


def main() -> None:
    triton.runtime.driver.set_active(HopperDriver())
    compiled: list[Any] = []
    for module in MODULES:
        for kernel in vars(module).values():
            if isinstance(kernel, triton.JITFunction) and kernel.__name__.endswith("_kernel"):
                kernel.run = functools.partial(compile_only, kernel.run, compiled)
    for early_start_triton.MAX_ROWS in (0, 1 << 20):
        for name, case in cases():
            case()
            waits = compiled[-1].asm["ptx"].count("griddepcontrol.wait")
            print(f"{name}: {compiled[-1].metadata.shared} bytes of shared memory, waits {waits}")


def compile_only(run: Callable[..., object], compiled: list[Any], *arguments: Any, **options: Any) -> None:
    compiled.append(run(*arguments, **options | {"warmup": True}))


if __name__ == "__main__":
    main()
