"""Questions for a server with OpenAI's interface. Owns the requests over HTTP and their limit at once."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from legato.errors import ConfigError, RequestError
from legato.eval.answers import Answer, Progress
from legato.eval.gsm8k import Prompt
from legato.eval.questions import Questions
from legato.eval.row import EvalRow, row


class OpenAIServer:
    """A server at ``base_url``, with or without its ``/v1``.

    ``model`` None: the first that the server lists.
    """

    def __init__(self, base_url: str, *, model: str | None, api_key: str | None, timeout_s: float = 3600.0) -> None:
        root = base_url.rstrip("/").removesuffix("/v1")
        self._root = f"{root}/v1"
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout = httpx.Timeout(timeout_s, connect=10.0)
        self.model = model or self._first_model()

    def answer(self, asked: Questions, *, concurrency: int, progress: Progress = lambda *_: None) -> list[Answer]:
        """Return one answer per prompt, ``concurrency`` of them asked at once.

        Raises ConfigError where the server cannot be reached, RequestError where it refuses a question.
        """
        body = {"model": self.model, "max_tokens": asked.max_tokens, "temperature": 0.0, "stop": list(asked.stop)}
        asks = [_Ask.of(prompt, body) for prompt in asked.prompts]
        return asyncio.run(self._answer(asks, concurrency, progress))

    async def _answer(self, asks: "Sequence[_Ask]", concurrency: int, progress: Progress) -> list[Answer]:
        free = asyncio.Semaphore(concurrency)
        num_done = num_tokens = 0
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(headers=self._headers, timeout=self._timeout, limits=limits) as client:

            async def answered(ask: _Ask) -> Answer:
                nonlocal num_done, num_tokens
                async with free:
                    answer = await self._one(client, ask)
                num_done, num_tokens = num_done + 1, num_tokens + answer.num_output_tokens
                progress(num_done, num_tokens)
                return answer

            return list(await asyncio.gather(*map(answered, asks)))

    async def _one(self, client: httpx.AsyncClient, ask: "_Ask") -> Answer:
        started = time.perf_counter()
        try:
            response = await client.post(f"{self._root}/{ask.route}", json=ask.body)
        except httpx.HTTPError as error:
            raise _unreachable(self._root, error) from error
        value = _value(response)
        return Answer(
            text=ask.text(value["choices"][0]),
            num_prompt_tokens=value["usage"]["prompt_tokens"],
            num_output_tokens=value["usage"]["completion_tokens"],
            latency_s=time.perf_counter() - started,
        )

    def _first_model(self) -> str:
        try:
            response = httpx.get(f"{self._root}/models", headers=self._headers, timeout=self._timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(self._root, error) from error
        model: str = _value(response)["data"][0]["id"]
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """One question on its way: to the chat route where it is a conversation."""

    route: str
    body: dict[str, Any]

    @classmethod
    def of(cls, prompt: Prompt, body: dict[str, Any]) -> "_Ask":
        if isinstance(prompt, str):
            return cls(route="completions", body=body | {"prompt": prompt})
        return cls(route="chat/completions", body=body | {"messages": prompt})

    def text(self, choice: dict[str, Any]) -> str:
        """Return what a choice says; a message may say nothing."""
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        return text or ""


def ask(server: OpenAIServer, asked: Questions, *, concurrency: int, progress: Progress) -> EvalRow:
    """Ask a server everything and judge its answers."""
    started = time.perf_counter()
    answers = server.answer(asked, concurrency=concurrency, progress=progress)
    return row(asked, answers, time.perf_counter() - started, engine="server", model=server.model)


def _unreachable(url: str, error: Exception) -> ConfigError:
    details = {"requested": url, "found": f"{type(error).__name__}: {error}", "options": "--base-url http://HOST:PORT"}
    return ConfigError("the server does not answer", details)


def _value(response: httpx.Response) -> Any:
    """Return the JSON of a response. Raises RequestError, with what the server said, for one that is an error."""
    if response.is_success:
        return response.json()
    details = {"requested": str(response.request.url), "found": f"{response.status_code} {response.text[:300]}"}
    raise RequestError("the server refused a request", details)
