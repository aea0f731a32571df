"""Token ids, as they are generated -> text, as it becomes certain. Owns the text held back at the end of a stream.

The pieces joined are the text that decoding all ids at once gives, and each token costs the same however long the
output has become.
"""

import codecs
from collections.abc import Iterable, Sequence

from legato.loading.tokenizer import Tokenizer, byte_fallback


class IncrementalDetokenizer:
    """Text of one output, without special tokens. Never half a character, or a U+FFFD that a later token completes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream: _ByteStream | _WindowStream = (
            _ByteStream(tokenizer) if tokenizer.is_byte_level else _WindowStream(tokenizer)
        )

    def add(self, token_ids: Iterable[int]) -> str:
        """Take the next tokens, and return the text that is certain now."""
        is_special = self._tokenizer.is_special
        return self._stream.add([token_id for token_id in token_ids if not is_special(token_id)])

    def finish(self) -> str:
        """Return what was held back; no token follows."""
        return self._stream.finish()


class _ByteStream:
    """Byte-level vocabularies: the bytes run through one UTF-8 decoder, which holds back a character's start."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_ids: Sequence[int]) -> str:
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, token_ids)))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowStream:
    """Other vocabularies: new tokens are decoded behind the one before them, which settles the space between them.

    A run of byte tokens is valid or invalid as a whole, so that it is held back until another token ends it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []
        self._held: list[int] = []

    def add(self, token_ids: Sequence[int]) -> str:
        return "".join([self._add_one(token_id) for token_id in token_ids])

    def _add_one(self, token_id: int) -> str:
        self._held.append(token_id)
        if byte_fallback(self._tokenizer.piece(token_id)) is not None:
            return ""
        text = self._settle()
        self._before, self._held = [token_id], []
        return text

    def finish(self) -> str:
        text, self._held = self._settle(), []
        return text

    def _settle(self) -> str:
        known = len(self._tokenizer.decode(self._before, skip_special_tokens=False))
        return self._tokenizer.decode(self._before + self._held, skip_special_tokens=False)[known:]
