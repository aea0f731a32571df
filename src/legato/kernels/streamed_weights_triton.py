# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Reading the weights of a product, which no kernel writes: each once, and before their turn where that is possible."""

import triton
import triton.language as tl

LINE_ELEMENTS = tl.constexpr(64)
"""Of a 2-byte dtype in a line of the cache."""


@triton.jit
def load_weights(place: tl.tensor, inside: tl.tensor, WHOLE: tl.constexpr) -> tl.tensor:
    """Load weights that nobody reads again; ``WHOLE``: the tiles fill the matrix, so that no element is masked."""
    if WHOLE:
        return tl.load(place, eviction_policy="evict_first")
    else:  # noqa: RET505 (Triton needs both branches)
        return tl.load(place, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def draw_near(place: tl.tensor) -> None:
    """Bring the lines at ``place``, addresses inside the matrix, into the L2 cache; nothing waits for them."""
    # fmt: off
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [place],
                              dtype=tl.int32, is_pure=False, pack=1)
    # fmt: on
