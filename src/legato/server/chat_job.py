"""What a conversation asks of the engine, and how the text that comes back is read: for every route that takes one."""

from dataclasses import dataclass, replace

from legato.server.answer import Choice
from legato.server.conversation import conversation
from legato.server.errors import ApiError
from legato.server.job import Job, job_of
from legato.server.message import MessageReader
from legato.server.params import chat_params
from legato.server.parsers.registry import MessageStyle
from legato.server.requests import ChatBody
from legato.server.state import ServerState
from legato.server.tools import ToolUse, tool_use


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatJob:
    """One conversation, ready to be continued."""

    job: Job
    tools: ToolUse
    style: MessageStyle

    def reader(self, choice: Choice) -> MessageReader:
        """Return a reader of the message that ``choice`` is to become."""
        tools = self.tools
        parser = self.style.parser(tools.names, prompt=choice.prompt.prompt or "", in_call=tools.guide is not None)
        return MessageReader(parser, begun=tools.begun, parallel=tools.parallel)


def chat_job(body: ChatBody, request_id: str, state: ServerState) -> ChatJob:
    """Return what ``body`` asks for; raises ApiError or RequestError, naming the field at fault."""
    tools = tool_use(body, state.style)
    prompt = conversation(
        body.messages,
        add_generation_prompt=body.add_generation_prompt,
        template_variables=body.chat_template_kwargs,
        tools=tools,
    )
    params = chat_params(body, max_logprobs=state.llm.config.max_logprobs)
    if tools.guide is not None:
        if params.guided is not None:
            raise ApiError(400, "tool_choice: a call that must be made has its own form", param=params.guided.param)
        params = replace(params, guided=tools.guide)
    return ChatJob(job=job_of(body, request_id, [prompt], params), tools=tools, style=state.style)
