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
    acceptance_triton,
    argmax_triton,
    draft_inputs_triton,
    early_start_triton,
    head_inputs_triton,
    linear_triton,
    log_exponential_triton,
    paged_attention_decode_triton,
    prompt_lookup_triton,
    rms_norm_triton,
    rotary_triton,
    row_state_triton,
    silu_mul_triton,
    token_lookups_triton,
)
from legato.kernels.acceptance import Accepted, Coins, Verified
from legato.kernels.draft_inputs import Judged
from legato.kernels.head_inputs import Normed
from legato.kernels.linear import Norm
from legato.kernels.linear_tilings import Tiling
from legato.kernels.paged_attention_configs import TileConfig
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kernels.prompt_lookup import NewTokens
from legato.kernels.rotary import Rotation
from legato.kernels.row_state import RowState

META = torch.device("meta")
MODULES = (
    acceptance_triton,
    argmax_triton,
    draft_inputs_triton,
    head_inputs_triton,
    linear_triton,
    log_exponential_triton,
    paged_attention_decode_triton,
    prompt_lookup_triton,
    rms_norm_triton,
    rotary_triton,
    row_state_triton,
    silu_mul_triton,
    token_lookups_triton,
)


class HopperDriver:
    """What compiling asks of a driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    @property
    def utils(self) -> "HopperDriver":
        return self

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 227 << 10}

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


def decode(num_splits: int, config: TileConfig | None = None) -> None:
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
        config=config,
    )


def numbers(*shape: int) -> torch.Tensor:
    return empty(*shape, dtype=torch.int64)


def row_state() -> RowState:
    return RowState(numbers(9), numbers(9), numbers(9, 5), empty(9, 4, dtype=torch.int32))


def accept(*, by_coins: bool) -> None:
    given, starts = (None, empty(4, dtype=torch.int32)) if by_coins else (numbers(4), numbers(4))
    drafted = row_state().drafts
    judged = Verified(numbers(4, 4), given, numbers(4), drafted, numbers(4), numbers(4, 4)[:, 0], starts)
    place = Accepted(numbers(4, 4), numbers(4), numbers(4), numbers(4))
    coins = Coins(numbers(9, 6)[:, 3], empty(3, dtype=torch.int32)) if by_coins else None
    acceptance_triton.accept(judged, place, coins)


def passes() -> None:
    more = {"null_row": 8, "num_passes": 3, "block_size": 16, "max_position": 131071}
    judged = Judged(numbers(4), numbers(4, 5), numbers(4), numbers(4), empty(16, 576))
    draft_inputs_triton.draft_inputs(judged, row_state().block_table, **more)


def rotate() -> None:
    rotation = Rotation(cos=empty(3, 1, 64), sin=empty(3, 1, 64))
    cache = empty(10, 16, 2, 64)
    rotary_triton.rotate_and_store(empty(3, 12, 64), rotation, cache, cache, empty(3, dtype=torch.int64))


def head() -> None:
    norm = Norm(empty(576), 1e-5)
    vectors = Normed(empty(96, 576), norm), Normed(empty(3, 576), norm)
    head_inputs_triton.head_inputs(numbers(3), *vectors, numbers(3), empty(50, 2, 64))


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "one row, norm and gate", lambda: product(1, Tiling(2, 1024, 4, 1), normed=True, gated=True)
    four = Tiling(2, 1024, 4, 1, block_rows=4)
    yield "four rows, norm and gate", lambda: product(4, four, normed=True, gated=True)
    yield "four rows, added", lambda: product(3, Tiling(4, 256, 4, 1, block_rows=4), added=True)
    yield "few rows, norm and gate", lambda: product(8, Tiling(16, 64, 4, 4), normed=True, gated=True)
    yield "few rows, norm, split", lambda: product(8, Tiling(16, 64, 4, 4, splits=3), normed=True)
    weights_left = Tiling(64, 64, 4, 4, splits=2, left="weights")
    yield "few rows, weights left, gate", lambda: product(8, weights_left, gated=True)
    in_weights = Tiling(16, 64, 4, 4, block_rows=64, norm="weights")
    yield "64 rows, norm in weights and gate", lambda: product(64, in_weights, normed=True, gated=True)
    yield "64 rows, added", lambda: product(64, Tiling(32, 64, 4, 4, block_rows=64), added=True)
    yield "decode, split", lambda: decode(4)
    apart = TileConfig(block_m=16, block_n=64, num_warps=4, num_stages=5, at_once=True, warps_apart=True)
    yield "decode, warps apart", lambda: decode(1, apart)
    yield "argmax", lambda: argmax_triton.argmax(empty(256, 128256))
    noisy = numbers(9, 6)[:3, 3], numbers(3), empty(128256, dtype=torch.int32)
    yield "noise", lambda: log_exponential_triton.log_exponential(*noisy)
    yield "a draft's name", lambda: argmax_triton.argmax(empty(1, 32000), numbers(32000), numbers(1))
    yield "inputs of a step", lambda: row_state_triton.uniform_inputs(numbers(4), row_state(), 4, 16, 131071)
    yield "which drafts stand", lambda: accept(by_coins=False)
    yield "which coins stand", lambda: accept(by_coins=True)
    yield "inputs of passes", passes
    new = NewTokens(numbers(4), numbers(4, 5)[:, :4], numbers(4, 5)[:, 4], numbers(4))
    history = empty(9, 4112, dtype=torch.int32)
    yield "what followed before", lambda: prompt_lookup_triton.look_up(history, new, 4, 1, 4)
    yield "norm", lambda: rms_norm_triton.rms_norm(empty(3, 576), empty(576), 1e-5)
    looked_up = numbers(3), empty(96, 576), numbers(3), empty(50, 2, 64)
    yield "what tokens look up", lambda: token_lookups_triton.token_lookups(*looked_up)
    yield "inputs of a draft head", head
    yield "gate", lambda: silu_mul_triton.silu_mul(empty(3, 1024))
    yield "rotation", rotate
    last = numbers(4), numbers(4), numbers(4), row_state(), 8
    yield "rows of a step", lambda: row_state_triton.advance(*last, None)
    yield "rows of a round", lambda: row_state_triton.advance(*last, numbers(3, 4).t())


def main() -> None:
    triton.runtime.driver.set_active(HopperDriver())
    compiled: list[Any] = []
    for module in MODULES:
        for kernel in vars(module).values():
            if isinstance(kernel, triton.JITFunction) and kernel.__name__.endswith("_kernel"):
                kernel.run = functools.partial(compile_only, kernel.run, compiled)
    every = tuple(1 << exponent for exponent in range(20))
    for rows in ((), every):
        early_start_triton.NARROW_ROWS = early_start_triton.WIDE_ROWS = rows
        for name, case in cases():
            case()
            waits = compiled[-1].asm["ptx"].count("griddepcontrol.wait")
            print(f"{name}: {compiled[-1].metadata.shared} bytes of shared memory, waits {waits}")


def compile_only(run: Callable[..., object], compiled: list[Any], *arguments: Any, **options: Any) -> None:
    compiled.append(run(*arguments, **options | {"warmup": True}))


if __name__ == "__main__":
    main()
