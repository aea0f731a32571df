"""A deterministic engine core that answers a chat with the chat's last message, for the tiny model's byte tokens.

Where the answer is begun in the prompt already, what is left of it follows.
"""

from dataclasses import replace

import scripted_core

from legato.config.options import EngineOptions
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate

END, START = 0, 1
MAX_MODEL_LEN = 2048


def build(options: EngineOptions, console: object = None) -> "EchoCore":
    """Build the core."""
    return EchoCore(options)


class EchoCore(scripted_core.ScriptedCore):
    """Gives each request one token of its answer per step."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        scheduler = replace(self.config.scheduler, max_model_len=MAX_MODEL_LEN)
        model = replace(self.config.model, max_position_embeddings=MAX_MODEL_LEN)
        self.config = replace(self.config, scheduler=scheduler, model=model)

    def _advance(self, request: Request) -> RequestUpdate:
        outputs = self._outputs[request.request_id]
        token = self.answer(request.prompt_token_ids)[len(outputs)]
        outputs.append(token)
        self._generated += 1
        finish: FinishReason | None = FinishReason.STOP if token == END else None
        if finish is None and len(outputs) >= request.max_tokens:
            finish = FinishReason.LENGTH
        if finish is not None:
            del self._requests[request.request_id]
        wanted = request.params.logprobs
        return RequestUpdate(
            request_id=request.request_id,
            token_ids=(token,),
            logprobs=() if wanted is None else (scripted_core.logprobs(token, wanted),),
            finish_reason=finish,
        )

    def answer(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens that answer: the last message's, less those that the prompt has of them; an end."""
        starts = [place for place, token in enumerate(prompt) if token == START]
        end = prompt.index(END, starts[-2])
        message = prompt[starts[-2] + 1 + len("user\n") : end]
        begun = prompt[starts[-1] + 1 + len("assistant\n") :]
        return (*(message[len(begun) :] if message[: len(begun)] == begun else message), END)
