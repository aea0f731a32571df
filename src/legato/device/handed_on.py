"""Memory that segments hand on, and who holds it. Owns the rule of a pool: what nobody holds is written over.

On a GPU a later capture uses such memory for its own tensors. Here it is filled with ones, not-a-number or -1, at the
same place: whoever still reads it, at the capture or at a replay, reads nonsense, and a comparison shows it.
"""

import weakref

import torch

FILLING = 0xFF


class HandedOn:
    """Holders are tensors that a capture has seen; what only borrows is none."""

    def __init__(self) -> None:
        self._memory: dict[int, torch.Tensor] = {}  # address -> the bytes there
        self._holders: dict[int, list[weakref.ref[torch.Tensor]]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count ``tensor`` among the holders of its memory."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return
        address = storage.data_ptr()
        if address not in self._memory:
            everything = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            self._memory[address] = everything
            self._holders[address] = []
        self._holders[address].append(weakref.ref(tensor))

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Return whether the memory of ``tensor`` was handed on and is held."""
        return tensor.untyped_storage().data_ptr() in self._memory

    def take_released(self) -> list[torch.Tensor]:
        """Return, as bytes, the memory whose holders have gone since the last call."""
        gone = [address for address, holders in self._holders.items() if all(holder() is None for holder in holders)]
        for address in gone:
            del self._holders[address]
        return [self._memory.pop(address) for address in gone]
