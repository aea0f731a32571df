"""Compile kernels together for a Hopper GPU, without one: run as a script, prints what became of them."""

import functools

import torch
import triton
import triton.language as tl
from compile_for_hopper import META, HopperDriver, compile_only, product

from legato.kernels.compile_together_triton import compiled_together
from legato.kernels.linear_few_rows_triton import few_rows_kernel
from legato.kernels.linear_tilings import Tiling


class Driver(HopperDriver):
    """One whose launchers are counted and not compiled."""

    launchers = 0

    def launcher_cls(self, source: object, metadata: object) -> None:
        self.launchers += 1


@triton.jit
def broken_kernel(out: tl.tensor) -> None:
    """Be refused by the compiler."""
    tl.static_assert(False, "there is nothing to compile")


def products() -> None:
    for block_out in (16, 32, 64):
        product(5, Tiling(block_out, 64, 4, 4))


def main() -> None:
    driver = Driver()
    triton.runtime.driver.set_active(driver)
    compilations: list[object] = []
    triton.knobs.compilation.listener = lambda **told: compilations.append(told)
    told: list[tuple[int, int]] = []
    with compiled_together(lambda done, asked: told.append((done, asked))):
        products()
        broken_kernel[(1,)](torch.empty(1, device=META))
        products()
    kinds = {type(kernel).__name__ for kernel in few_rows_kernel.device_caches[0][0].values()}
    print(f"told {told[-1]}, compiled {len(compilations)} {kinds}, launchers {driver.launchers}")
    few_rows_kernel.run = functools.partial(compile_only, few_rows_kernel.run, [])
    products()
    print(f"compiled {len(compilations)} when they are launched")
    try:
        broken_kernel.warmup(torch.empty(1, device=META), grid=(1,))
    except triton.CompilationError as error:
        print(f"launched, the broken one says: {str(error).splitlines()[-1]}")


if __name__ == "__main__":
    main()
