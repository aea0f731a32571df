"""Text, token ids or a conversation -> engine requests. Owns tokenising and everything that is resolved per request.

Raises RequestError, naming the parameter, before the engine hears of a request that it could not serve.
"""

import itertools
import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from legato.config.engine import EngineConfig
from legato.engine.grammars import Grammars
from legato.engine.request_limits import check_params, check_prompt, check_something_is_left, resolve_max_tokens
from legato.errors import RequestError
from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams
from legato.loading.tokenizer import Tokenizer
from legato.sampling.seeds import mix_seed

Prompt = str | Sequence[int]
"""Text, or the token ids themselves."""
Messages = Sequence[Mapping[str, Any]]
"""A conversation: each message with ``role`` and ``content``."""


class InputProcessor:
    """Makes requests for one engine; counts those without a seed, so that each draws its own."""

    def __init__(self, tokenizer: Tokenizer | None, config: EngineConfig, grammars: Grammars | None = None) -> None:
        """``grammars``: the engine's own, where it is in this process."""
        self._tokenizer = tokenizer
        self._grammars = grammars or Grammars(tokenizer, config.model)
        self._config = config
        self._unseeded = itertools.count()

    def process(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        arrival: float | None = None,
        add_special_tokens: bool = True,
    ) -> list[Request]:
        """Return one request per output: ``request_id`` itself, or for n > 1 ``request_id-0``, ``-1``, … of a group.

        ``arrival`` is in monotonic seconds, now by default. ``add_special_tokens`` is for text alone: false for what
        :meth:`chat_prompt` gives.
        """
        token_ids = self.token_ids(prompt, add_special_tokens=add_special_tokens)
        check_prompt(token_ids, self._config)
        check_params(params, self._config)
        requests = [
            Request(
                request_id=request_id if params.n == 1 else f"{request_id}-{index}",
                prompt_token_ids=token_ids,
                params=params,
                seed=seed,
                stop_token_ids=self._stop_token_ids(params),
                max_tokens=resolve_max_tokens(len(token_ids), params, self._config),
                arrival=time.monotonic() if arrival is None else arrival,
                priority=priority,
                group=None if params.n == 1 else request_id,
            )
            for index, seed in enumerate(self._seeds(params))
        ]
        check_something_is_left(requests[0])
        if params.guided is not None:
            self._grammars.check(params.guided)
        return requests

    @property
    def grammars(self) -> Grammars:
        """What compiles the guides of requests."""
        return self._grammars

    def token_ids(self, prompt: Prompt, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Return the ids of text, or the given ids as a tuple; raises RequestError for what is neither."""
        if isinstance(prompt, str):
            tokenizer = self._needed_tokenizer("prompt", "a text prompt")
            return tuple(tokenizer.encode(prompt, add_special_tokens=add_special_tokens))
        try:
            return tuple(map(operator.index, prompt))
        except TypeError as error:
            details = {"found": str(error), "options": "text | a list of token ids"}
            raise RequestError("the prompt is neither text nor token ids", details, param="prompt") from None

    def chat_prompt(self, messages: Messages, *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """Return a conversation as the model's chat template writes it, special tokens included."""
        if not messages:
            raise RequestError("there is no message", {"limit": "at least 1 message"}, param="messages")
        tokenizer = self._needed_tokenizer("messages", "a chat")
        return tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, **variables)

    def bad_words(self, words: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """Return the token sequences of ``words``, each at the start of a text and after a space."""
        tokenizer = self._needed_tokenizer("bad_words", "bad words as text")
        sequences: dict[tuple[int, ...], None] = {}
        for word in words:
            if not word.strip():
                raise RequestError("a bad word is blank", {"requested": repr(word)}, param="bad_words")
            for text in (word, f" {word.lstrip()}"):
                sequences[tuple(tokenizer.encode(text, add_special_tokens=False))] = None
        return tuple(sequences)

    def _seeds(self, params: SamplingParams) -> list[int]:
        seed = params.seed
        if seed is None:
            seed = mix_seed(self._config.seed, next(self._unseeded))
        return [seed if index == 0 else mix_seed(seed, index) for index in range(params.n)]

    def _stop_token_ids(self, params: SamplingParams) -> frozenset[int]:
        stops = set(params.stop_token_ids)
        if not params.ignore_eos:
            stops.update(self._config.model.eos_token_ids)
        if params.stop or (not params.ignore_eos and self._tokenizer is not None):
            tokenizer = self._needed_tokenizer("stop", "stop strings")
            if not params.ignore_eos:
                stops.update(tokenizer.eos_token_ids)
            # Special tokens never show in the text, so that as strings they would never be found.
            stops.update(
                ids[0]
                for ids in (tokenizer.encode(stop, add_special_tokens=False) for stop in params.stop)
                if len(ids) == 1 and tokenizer.is_special(ids[0])
            )
        return frozenset(stops)

    def _needed_tokenizer(self, param: str, what: str) -> Tokenizer:
        if self._tokenizer is None:
            details = {"requested": what, "found": "a model without a tokenizer", "options": "token ids"}
            raise RequestError("this model has no tokenizer", details, param=param)
        return self._tokenizer
