"""The text of single tokens, as log-probabilities show it, with or without a tokenizer."""

from legato.loading.tokenizer import Tokenizer


class TokenText:
    """Spells tokens."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def text(self, token_id: int) -> str:
        """Return the token's own text; without a tokenizer, its id."""
        return f"token_id:{token_id}" if self._tokenizer is None else self._tokenizer.token_text(token_id)

    def bytes(self, token_id: int) -> list[int] | None:
        """Return the token's bytes, which joined and decoded give the text; None without a tokenizer."""
        return None if self._tokenizer is None else list(self._tokenizer.token_bytes(token_id))
