"""One tensor of a checkpoint, described before it is read; and how loading reports what it did."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Progress = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all), after each tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a file. Its shape can be checked before its data is touched."""

    name: str
    """Hugging Face parameter name."""
    stored_name: str
    """Name in the file."""
    file: str
    shape: tuple[int, ...]
    num_bytes: int
    load: Callable[[], torch.Tensor]
    """Reads, and where needed dequantises, the data."""
    is_floating: bool = True
    """False: whole numbers, such as a table of token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What loading a model's weights took."""

    seconds: float
    num_bytes: int
    """Bytes read from files; of dummy weights, bytes made."""
    num_tensors: int
    unexpected: tuple[str, ...] = ()
    """Tensors of the checkpoint that the model has no place for."""

    def __str__(self) -> str:
        rate = self.num_bytes / max(self.seconds, 1e-9) / 1e9
        return f"{self.num_tensors} tensors, {self.num_bytes / 1e6:.1f} MB in {self.seconds:.2f} s ({rate:.2f} GB/s)"
