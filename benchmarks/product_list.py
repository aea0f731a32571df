"""The matrix products that the few-row kernels are judged by and tuned for."""

import math
from typing import NamedTuple

from legato.kernels.linear_measured import GATED_TILINGS, NORM_TILINGS, TILINGS
from legato.kernels.linear_tilings import Tiling


class Product(NamedTuple):
    """One matrix product of a model."""

    name: str
    out_size: int
    in_size: int
    times: int
    """In one step."""
    normed: bool = False
    """Behind a norm."""
    gated: bool = False
    """Behind a norm, and before a gate."""
    added: bool = False
    """To the residual."""

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Rows and columns of the weights."""
        return (self.out_size * (2 if self.gated else 1), self.in_size)

    @property
    def num_bytes(self) -> int:
        """Size of the weights in a 2-byte dtype."""
        return 2 * math.prod(self.weight_shape)

    @property
    def table_name(self) -> str:
        """The name of the table that this product is looked up in."""
        return "GATED_TILINGS" if self.gated else "NORM_TILINGS" if self.normed else "TILINGS"

    @property
    def table(self) -> dict[tuple[int, int, int], Tiling]:
        """The table that this product is looked up in."""
        return {"GATED_TILINGS": GATED_TILINGS, "NORM_TILINGS": NORM_TILINGS, "TILINGS": TILINGS}[self.table_name]


PRODUCTS = {
    "llama-3.1-8b": (
        Product("qkv", 6144, 4096, 32, normed=True),
        Product("output", 4096, 4096, 32, added=True),
        Product("gate_up", 14336, 4096, 32, normed=True, gated=True),
        Product("down", 4096, 14336, 32, added=True),
        Product("lm_head", 128256, 4096, 1),
    ),
    "llama-3.1-8b-eagle3": (
        Product("fc", 4096, 12288, 1),
        Product("qkv", 6144, 8192, 3),
        Product("lm_head", 32000, 4096, 3, normed=True),
    ),
    "smollm2-135m": (
        Product("qkv", 960, 576, 30, normed=True),
        Product("output", 576, 576, 30, added=True),
        Product("gate_up", 1536, 576, 30, normed=True, gated=True),
        Product("down", 576, 1536, 30, added=True),
        Product("lm_head", 49152, 576, 1),
    ),
}
