"""``legato chat``: a conversation in the terminal. Owns its history and its commands."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from legato.cli.sampling_options import SamplingOptions
from legato.cli.speed import Stopwatch
from legato.config.options import EngineOptions

if TYPE_CHECKING:  # the engine imports torch
    from legato.engine.llm import LLM
    from legato.flow.request_output import RequestOutput
    from legato.flow.sampling_params import SamplingParams

HELP = "/reset forgets the conversation · /exit or Ctrl-D leaves · Ctrl-C stops an answer"


def chat(
    *,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Talk with a chat model in the terminal. It remembers the conversation; /reset, /exit, Ctrl-C stops an answer.

    Example:

    - `legato chat --temperature 0.7 --system "You are terse."`
    """
    params = sampling.params(engine.seed)
    from legato.engine.llm import LLM

    console = Console(stderr=True)
    llm = LLM(engine.sized_for(1), console=console)
    console.print(HELP, style="dim")
    Conversation(llm, params, system, console).run()


class Conversation:
    """One conversation, with all that was said so far."""

    def __init__(self, llm: "LLM", params: "SamplingParams", system: str | None, console: Console) -> None:
        self._llm = llm
        self._params = params
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._console = console
        self.messages = list(self._opening)

    def run(self) -> None:
        """Read and answer until the user leaves."""
        for said in self._lines():
            if said == "/exit":
                return
            if said == "/reset":
                self.messages = list(self._opening)
                self._console.print("forgotten", style="dim")
            elif said:
                self.answer(said)

    def answer(self, said: str) -> None:
        """Stream the answer to ``said``. What was printed when Ctrl-C came stays part of the conversation."""
        from legato.cli.errors import print_error
        from legato.errors import RequestError

        self.messages.append({"role": "user", "content": said})
        watch = Stopwatch()
        try:
            stream = self._llm.stream_chat(self.messages, self._params)
        except RequestError as error:  # such as a conversation that has become too long
            self.messages.pop()
            print_error(error, self._console)
            return
        answer = self._print(stream, watch)
        self.messages.append({"role": "assistant", "content": answer})
        self._console.print(watch.line(), style="dim", highlight=False)

    def _print(self, stream: "Iterator[RequestOutput]", watch: Stopwatch) -> str:
        """Print the answer as it comes, until its end or Ctrl-C; return it."""
        from legato.cli.answers import raise_error

        pieces: list[str] = []
        with closing(stream), _interrupts() as interrupted:  # type: ignore[type-var]
            for delta in stream:
                raise_error(delta)
                for completion in delta.outputs:
                    watch.see(len(completion.token_ids))
                    pieces.append(completion.text)
                    print(completion.text, end="", flush=True)
                if interrupted():
                    self._console.print("\nstopped", style="dim")
                    break
        print()
        return "".join(pieces)

    def _lines(self) -> Iterator[str]:
        """Yield what the user types, line by line, until Ctrl-D. Ctrl-C at the prompt clears the line."""
        while True:
            try:
                yield input("> ").strip()
            except KeyboardInterrupt:
                print()
            except EOFError:
                print()
                return


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Make Ctrl-C a question that can be asked: it must not break an engine in the middle of a step."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
