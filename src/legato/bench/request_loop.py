"""A closed loop around an engine: so many requests at once, a new one when one ends. Owns the loop and its clock."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from legato.bench.contestant import SteppedEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt, and how long its output may be."""

    prompt: tuple[int, ...]
    output_len: int


@dataclass(slots=True)
class Answered:
    """One request's life, in seconds of the loop's clock."""

    added: float
    first: float = 0.0
    last: float = 0.0
    token_ids: list[int] = field(default_factory=list)

    @property
    def seconds_per_token(self) -> float:
        """Seconds between two tokens after the first one, in the mean."""
        return (self.last - self.first) / max(1, len(self.token_ids) - 1)


@dataclass(slots=True)
class RequestLoop:
    """An engine, driven by hand. Its requests are named ``name`` with a number behind it."""

    engine: SteppedEngine
    end_token_ids: frozenset[int] = frozenset()
    """What ends an output before its length does."""
    name: str = "loop"
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self, asked: Sequence[Asked], concurrency: int, report: Callable[[int, str], None]) -> list[Answered]:
        """Answer all, so many at once, and return the answers in the order asked; ``report`` is told (ended, "")."""
        waiting = deque(enumerate(asked))
        running: dict[str, int] = {}
        answers: dict[int, Answered] = {}
        num_ended = 0
        while waiting or running:
            while waiting and len(running) < concurrency:
                number, one = waiting.popleft()
                request_id = f"{self.name}-{next(self._numbers)}"
                running[request_id], answers[number] = number, Answered(time.perf_counter())
                self.engine.add(request_id, one.prompt, one.output_len, self.end_token_ids)
            news = self.engine.step()
            now = time.perf_counter()
            for new in news:
                answer = answers[running[new.request_id]]
                if new.token_ids:
                    answer.first = answer.first or now
                    answer.last = now
                    answer.token_ids += new.token_ids
                if new.finished:
                    del running[new.request_id]
                    num_ended += 1
                    report(num_ended, "")
        return [answers[number] for number in range(len(asked))]
