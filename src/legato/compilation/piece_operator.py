"""A compiled piece as one operator, ``legato::piece``. Owns the table from a piece's number to its code.

Compiled code calls kernels that PyTorch's dispatcher does not see. As one operator a piece is one node to whoever
watches: to the recording device, and to a profiler.
"""

import itertools
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import torch

from legato.device.recording_capture import PYTHON_KERNEL


class CompiledPiece:
    """A piece's code, for as long as somebody holds it."""

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]], num_sizes: int) -> None:
        """``function`` takes ``num_sizes`` sizes, all of them the number of tokens, then the piece's inputs."""
        self.function = function
        self.num_sizes = num_sizes
        self.number = next(_NUMBERS)
        _PIECES[self.number] = self

    def __call__(self, inputs: Sequence[torch.Tensor], num_tokens: int) -> Sequence[torch.Tensor]:
        """Return the piece's outputs."""
        outputs: Sequence[torch.Tensor] = torch.ops.legato.piece(self.number, inputs, num_tokens)
        return outputs


_NUMBERS = itertools.count()
_PIECES: WeakValueDictionary[int, CompiledPiece] = WeakValueDictionary()


def _piece(number: int, inputs: list[torch.Tensor], num_tokens: int) -> list[torch.Tensor]:
    piece = _PIECES[number]
    return list(piece.function(*(num_tokens,) * piece.num_sizes, *inputs))


_LIBRARY = torch.library.Library("legato", "FRAGMENT")
_LIBRARY.define("piece(int number, Tensor[] inputs, int num_tokens) -> Tensor[]")
_LIBRARY.impl("piece", _piece, "CompositeExplicitAutograd")
setattr(torch.ops.legato.piece.default, PYTHON_KERNEL, _piece)
