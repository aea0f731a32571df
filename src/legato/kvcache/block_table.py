"""The blocks of one request, and the names of its prefixes. Owns no block: the manager gives and takes them."""

from collections.abc import Sequence

from legato.kvcache.prefix_index import block_digest, root_digest


class BlockTable:
    """Blocks in token order. Names outlive a loss of the blocks, because they depend on the tokens alone.

    ``salt``: requests of equal salt share equal prefixes; None: this request shares nothing.
    """

    __slots__ = ("_digests", "block_ids", "num_registered", "num_slots", "salt")

    def __init__(self, salt: bytes | None) -> None:
        self.salt = salt
        self.block_ids: list[int] = []
        self.num_slots = 0
        """Tokens that the blocks hold where each token takes a slot: there is room for so many at least."""
        self.num_registered = 0
        """Leading blocks that the prefix index has been told of, or was the source of."""
        self._digests: list[bytes] = []

    def digest(self, index: int, token_ids: Sequence[int], block_size: int) -> bytes:
        """Return the name of block ``index``, which must be full; each name is computed once.

        ``token_ids`` are all known tokens of the request, which only ever grow.
        """
        assert self.salt is not None, "a request that shares nothing has no names"
        while len(self._digests) <= index:
            start = len(self._digests) * block_size
            parent = self._digests[-1] if self._digests else root_digest(self.salt)
            self._digests.append(block_digest(parent, token_ids[start : start + block_size]))
        return self._digests[index]
