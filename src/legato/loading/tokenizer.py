"""Text <-> token ids. Owns what the engine may ask of a tokenizer, over one ``tokenizers`` pipeline; knows no file."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from legato.errors import RequestError
from legato.loading.chat_template import ChatTemplate


class Tokenizer:
    """A model's vocabulary, its text pipeline and its chat template."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None,
        eos_token_ids: tuple[int, ...],
        chat_template: ChatTemplate | None,
    ) -> None:
        self.bos_token_id = bos_token_id
        self.eos_token_ids = eos_token_ids
        self.chat_template = chat_template
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._added = frozenset(added)
        self._special: frozenset[int] = frozenset(token_id for token_id, token in added.items() if token.special)
        self._bytes_of: dict[int, bytes] = {}
        """Of the tokens that were asked for."""
        self.is_byte_level = _is_byte_level(backend)
        """Tokens spell bytes, one character each, so that text is the tokens' bytes joined and decoded."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of ``text``. Special tokens written out in it count as such in either case.

        Raises RequestError for text that is no Unicode, such as half of a surrogate pair.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError("the text is not valid Unicode", {"found": error}, param="prompt") from error
        return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ``token_ids``; bytes that are no valid UTF-8 become U+FFFD."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Return the prompt's text, special tokens written out: encode it with ``add_special_tokens=False``.

        Raises RequestError where the model has no template, or its template refuses the messages.
        """
        if self.chat_template is None:
            raise RequestError(
                "this model has no chat template",
                {"requested": "a chat", "options": "a plain completion | a model trained for chat"},
                param="messages",
            )
        return self.chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def is_special(self, token_id: int) -> bool:
        """Return whether the token is left out of text, such as an end token."""
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for; a special token, and one without a spelling, as it is written."""
        known = self._bytes_of.get(token_id)
        if known is None:
            known = self._bytes_of[token_id] = self._spelled(token_id)
        return known

    def _spelled(self, token_id: int) -> bytes:
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        if token_id in self._added:
            return piece.encode()
        if self.is_byte_level:
            return _spelled_bytes(piece)
        byte = byte_fallback(piece)
        return bytes([byte]) if byte is not None else piece.replace("▁", " ").encode()

    def token_text(self, token_id: int) -> str:
        """Return the text of one token by itself, as log-probabilities show it."""
        return self.token_bytes(token_id).decode(errors="replace")

    def piece(self, token_id: int) -> str:
        """Return a token as the vocabulary spells it; an unknown id is empty."""
        return self._backend.id_to_token(token_id) or ""


def byte_fallback(piece: str) -> int | None:
    """Return the byte of a SentencePiece byte token such as ``<0x0A>``; None for any other piece."""
    if len(piece) != 6 or not piece.startswith("<0x") or not piece.endswith(">"):
        return None
    try:
        return int(piece[3:5], 16)
    except ValueError:
        return None


def _is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    if backend.decoder is None:
        return False
    state = json.loads(backend.decoder.__getstate__())
    return bool(state.get("type") == "ByteLevel")


def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's spelling of bytes: printable ones as themselves, the others from U+0100 on, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_of_character()


def _spelled_bytes(piece: str) -> bytes:
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in piece)
    except KeyError:
        return piece.encode()
