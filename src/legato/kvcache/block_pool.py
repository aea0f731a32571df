"""Which KV blocks are free, and how many owners the others have. Owns counts and order; knows no token and no request.

Block 0 is the null block: padding reads and writes it, and nobody gets it. Its place in the linked list of free blocks
is the list's head and tail, so that adding and removing need no special case.
"""

from collections.abc import Iterable, Sequence

NULL_BLOCK = 0


class BlockPool:
    """Reference counts of ``num_blocks`` blocks, and the free ones from least to most recently used.

    A free block keeps its content until :meth:`take` hands it out again; until then :meth:`touch` can revive it.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 2, "a pool needs the null block and one more"
        self._num_owners = [0] * num_blocks
        self._next = [*range(1, num_blocks), NULL_BLOCK]
        self._previous = [num_blocks - 1, *range(num_blocks - 1)]
        self._num_free = num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks without an owner, the null block not counted."""
        return self._num_free

    @property
    def num_total(self) -> int:
        """Blocks that can have an owner."""
        return len(self._num_owners) - 1

    def num_owners(self, block_id: int) -> int:
        """Return how many requests hold this block."""
        return self._num_owners[block_id]

    def take(self, count: int) -> list[int]:
        """Hand out the ``count`` least recently used free blocks, each with one owner."""
        assert count <= self._num_free, "taken more blocks than are free"
        block_ids = []
        for _ in range(count):
            block_id = self._next[NULL_BLOCK]
            self._unlink(block_id)
            self._num_owners[block_id] = 1
            block_ids.append(block_id)
        return block_ids

    def touch(self, block_ids: Iterable[int]) -> None:
        """Add one owner to each block, free or not."""
        for block_id in block_ids:
            assert block_id != NULL_BLOCK, "the null block has no owner"
            if self._num_owners[block_id] == 0:
                self._unlink(block_id)
            self._num_owners[block_id] += 1

    def free(self, block_ids: Sequence[int]) -> None:
        """Take one owner from each block. Blocks without owners become free; the first of them is reused first."""
        for block_id in block_ids:
            assert self._num_owners[block_id] > 0, "freed a block that is free"
            self._num_owners[block_id] -= 1
            if self._num_owners[block_id] == 0:
                self._append(block_id)

    def free_blocks(self) -> list[int]:
        """Return the free blocks in the order in which they will be reused."""
        block_ids = []
        block_id = self._next[NULL_BLOCK]
        while block_id != NULL_BLOCK:
            block_ids.append(block_id)
            block_id = self._next[block_id]
        return block_ids

    def _append(self, block_id: int) -> None:
        last = self._previous[NULL_BLOCK]
        self._next[last] = block_id
        self._previous[block_id] = last
        self._next[block_id] = NULL_BLOCK
        self._previous[NULL_BLOCK] = block_id
        self._num_free += 1

    def _unlink(self, block_id: int) -> None:
        before, after = self._previous[block_id], self._next[block_id]
        self._next[before] = after
        self._previous[after] = before
        self._num_free -= 1
