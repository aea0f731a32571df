"""``POST /tokenize`` and ``POST /detokenize``: what the engine would make of a text, and of token ids."""

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from legato.engine.async_engine import Conversation
from legato.engine.input_processor import Prompt
from legato.server.body import read_body
from legato.server.conversation import conversation
from legato.server.description import BODY_REFUSALS, answers, takes
from legato.server.errors import ApiError
from legato.server.requests import DetokenizeBody, TokenizeBody
from legato.server.state import state_of

router = APIRouter()


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/tokenize``."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/detokenize``."""

    prompt: str


@router.post("/tokenize", openapi_extra=takes(TokenizeBody), responses=answers(Tokenized, *BODY_REFUSALS))
async def tokenize(request: Request) -> Response:
    """Return the token ids of a prompt or a conversation."""
    state = await state_of(request)
    body = await read_body(request, state, TokenizeBody)
    tokens = await state.llm.tokenize(_prompt(body), add_special_tokens=body.add_special_tokens is not False)
    answer = Tokenized(
        count=len(tokens),
        max_model_len=state.llm.config.scheduler.max_model_len,
        tokens=tokens,
        token_strs=[state.speller.text(token) for token in tokens] if body.return_token_strs else UNSET,
    )
    return Response(msgspec.json.encode(answer), media_type="application/json")


@router.post("/detokenize", openapi_extra=takes(DetokenizeBody), responses=answers(Detokenized, *BODY_REFUSALS))
async def detokenize(request: Request) -> Response:
    """Return the text of token ids, special tokens included."""
    state = await state_of(request)
    body = await read_body(request, state, DetokenizeBody)
    answer = Detokenized(prompt=await state.llm.detokenize(body.tokens))
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _prompt(body: TokenizeBody) -> Prompt | Conversation:
    if body.messages is not None and body.prompt is None:
        return conversation(
            body.messages,
            add_generation_prompt=body.add_generation_prompt,
            template_variables=body.chat_template_kwargs,
        )
    if body.prompt is not None and body.messages is None:
        return body.prompt
    raise ApiError(400, "give either prompt or messages", param="prompt")
