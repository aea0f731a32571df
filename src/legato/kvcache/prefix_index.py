"""Which block holds which prefix. Owns digests and hit counts; knows no request and no reference count.

A block's content depends on all tokens before it, so a block is named by a chain: the digest of its parent's digest and
its own token ids. The chain starts from a salt; equal tokens under different salts are never shared. A cryptographic
hash, because one user's prompt must not be able to collide with another's on purpose.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 32


def root_digest(salt: bytes) -> bytes:
    """Return the parent of every first block under this salt."""
    return blake2b(salt, digest_size=DIGEST_BYTES, person=b"legato-prefix").digest()


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the name of the block that holds ``token_ids`` after the prefix named ``parent``."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=DIGEST_BYTES).digest()


class PrefixIndex:
    """Digest -> block, for every block whose content can be reused, in use or free."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self.query_tokens = 0
        """Prompt tokens looked up."""
        self.hit_tokens = 0
        """Prompt tokens found."""

    def __len__(self) -> int:
        return len(self._block_of)

    def find(self, digest: bytes) -> int | None:
        """Return the block of this name."""
        return self._block_of.get(digest)

    def register(self, digest: bytes, block_id: int) -> None:
        """Name a full, computed block; where the name is taken already, the earlier block keeps it."""
        if self._block_of.setdefault(digest, block_id) == block_id:
            self._digest_of[block_id] = digest

    def forget(self, block_id: int) -> None:
        """Drop the name of a block whose content is about to be overwritten."""
        digest = self._digest_of.pop(block_id, None)
        if digest is not None:
            del self._block_of[digest]

    def reset(self) -> None:
        """Drop all names; the counts, being totals since start, stay."""
        self._block_of.clear()
        self._digest_of.clear()

    def count(self, *, query_tokens: int, hit_tokens: int) -> None:
        """Add one lookup to the totals."""
        self.query_tokens += query_tokens
        self.hit_tokens += hit_tokens
