"""Log-probabilities as the two generating routes spell them. Owns their order and their fields."""

from collections.abc import Iterable, Sequence

from legato.flow.step_output import TokenLogprobs
from legato.server.responses import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from legato.server.token_text import TokenText


def completion_logprobs(
    tokens: Iterable[tuple[int, TokenLogprobs | None]], speller: TokenText, *, offset: int
) -> CompletionLogprobs:
    """Spell (token id, log-probabilities) pairs; the first token's text starts ``offset`` characters into the answer.

    The first token of a prompt has none, for nothing precedes it.
    """
    spelled = CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
    for token_id, logprobs in tokens:
        text = speller.text(token_id)
        spelled.tokens.append(text)
        spelled.text_offset.append(offset)
        spelled.token_logprobs.append(None if logprobs is None else logprobs.logprob)
        spelled.top_logprobs.append(None if logprobs is None else _top_by_text(logprobs, speller))
        offset += len(text)
    return spelled


def _top_by_text(logprobs: TokenLogprobs, speller: TokenText) -> dict[str, float]:
    top: dict[str, float] = {}
    for token_id, logprob in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True):
        top.setdefault(speller.text(token_id), logprob)  # of tokens with equal text the best stays
    top.setdefault(speller.text(logprobs.token_id), logprobs.logprob)
    return top


def chat_logprobs(tokens: Sequence[TokenLogprobs], speller: TokenText) -> ChatLogprobs:
    """Spell the log-probabilities of a message's tokens."""
    return ChatLogprobs(content=[_chat_token(token, speller) for token in tokens])


def _chat_token(logprobs: TokenLogprobs, speller: TokenText) -> TokenLogprob:
    top = [
        _candidate(token_id, logprob, speller)
        for token_id, logprob in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True)
    ]
    chosen = _candidate(logprobs.token_id, logprobs.logprob, speller)
    return TokenLogprob(token=chosen.token, logprob=chosen.logprob, bytes=chosen.bytes, top_logprobs=top)


def _candidate(token_id: int, logprob: float, speller: TokenText) -> TopLogprob:
    return TopLogprob(token=speller.text(token_id), logprob=logprob, bytes=speller.bytes(token_id))


def prompt_logprobs(positions: Sequence[TokenLogprobs | None], speller: TokenText) -> PromptLogprobs:
    """Spell the log-probabilities of a prompt's tokens, by token id."""
    return [None if position is None else _by_id(position, speller) for position in positions]


def _by_id(position: TokenLogprobs, speller: TokenText) -> dict[int, PromptLogprob]:
    candidates = {
        token_id: PromptLogprob(logprob, rank, speller.text(token_id))
        for rank, (token_id, logprob) in enumerate(zip(position.top_ids, position.top_logprobs, strict=True), 1)
    }
    candidates.setdefault(
        position.token_id, PromptLogprob(position.logprob, position.rank, speller.text(position.token_id))
    )
    return candidates


def joined(first: CompletionLogprobs | None, then: CompletionLogprobs | None) -> CompletionLogprobs | None:
    """Return both parts as one; None stands for a part without log-probabilities."""
    if first is None or then is None:
        return first or then
    return CompletionLogprobs(
        text_offset=first.text_offset + then.text_offset,
        token_logprobs=first.token_logprobs + then.token_logprobs,
        tokens=first.tokens + then.tokens,
        top_logprobs=first.top_logprobs + then.top_logprobs,
    )
