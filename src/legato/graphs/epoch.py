"""The addresses that graphs were captured over. Owns the count of their moves; a graph of an older epoch is stale."""

from collections.abc import Callable, Iterable

import torch

BufferGetter = Callable[[], Iterable[torch.Tensor]]
"""Returns the buffers as their owner holds them now."""


class BufferEpoch:
    """Watches persistent buffers through their owners, so that a rebuilt tensor is noticed as well as a moved one."""

    def __init__(self) -> None:
        self._owners: list[BufferGetter] = []
        self._addresses: tuple[int, ...] = ()
        self._number = 0

    def watch(self, buffers: BufferGetter) -> None:
        """Watch all buffers that ``buffers`` returns, now and at each later check."""
        self._owners.append(buffers)
        self._addresses = self._read()

    def current(self) -> int:
        """Return the epoch, raised by one if any buffer's address differs from the last call's."""
        addresses = self._read()
        if addresses != self._addresses:
            self._addresses = addresses
            self._number += 1
        return self._number

    def _read(self) -> tuple[int, ...]:
        return tuple([tensor.data_ptr() for owner in self._owners for tensor in owner()])
