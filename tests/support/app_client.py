"""OpenAI's client on the application itself, without a socket, over an engine process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.server.app import create_app

ECHO = "echo_core:build"
REAL = "legato.engine.bootstrap:build_engine"
CALLS = (
    '<think>Hm</think>Look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)
"""A thought, a word and two calls, for the parsers ``think`` and ``hermes``."""


@asynccontextmanager
async def serving(model: Path, *, factory: str = ECHO, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    """Serve ``model`` as "tiny" with the server ``options``; an echo answers with what it was told."""
    engine = EngineOptions(model=str(model), served_model_name="tiny", device="cpu", enforce_eager=True)
    llm = await AsyncLLM.start(engine, factory=factory)
    try:
        transport = httpx.ASGITransport(create_app(llm, ServerOptions(**options)))
        http = httpx.AsyncClient(transport=transport, base_url="http://legato/v1")
        async with openai.AsyncOpenAI(
            api_key="none", http_client=http, base_url=http.base_url, max_retries=0
        ) as client:
            yield client
    finally:
        await llm.shutdown()
