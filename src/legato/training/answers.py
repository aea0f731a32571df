"""What the target answers, by the engine, and the file that keeps it. Owns that no answer is generated twice.

The file's first line says which requests it answers; each further line is one answer, as they came. A run that was
interrupted goes on with those that are missing.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor
from legato.errors import ConfigError, EngineDeadError, QueueFullError
from legato.flow.request import Request
from legato.flow.request_update import FinishReason
from legato.flow.sampling_params import SamplingParams

_FREE_SEATS = 0.25
"""Share of the engine's seats that must be free before more requests take them."""
AnswerProgress = Callable[[int, int], None]
"""Told (answers there are, tokens generated since the start)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt, and how it is answered."""

    prompt_token_ids: tuple[int, ...]
    temperature: float
    max_tokens: int
    seed: int


class AnswerFile:
    """The answers to ``questions`` that are there already."""

    def __init__(self, path: Path, questions: Sequence[Question], model: str) -> None:
        """Raises ConfigError where the file answers other questions, or another model answered."""
        self._path = path
        self._header = {"model": model, "questions": len(questions), "sha256": _digest(questions)}
        self.answers: dict[int, tuple[int, ...]] = {}
        """Token ids by the number of the question, its end token included."""
        if path.exists():
            self._read()
        else:
            path.write_text(json.dumps(self._header) + "\n")

    def add(self, number: int, token_ids: tuple[int, ...]) -> None:
        """Keep one answer, here and in the file."""
        self.answers[number] = token_ids
        with self._path.open("a") as file:
            file.write(json.dumps({"question": number, "token_ids": token_ids}) + "\n")

    def _read(self) -> None:
        lines = self._path.read_text().splitlines(keepends=True)
        found = json.loads(lines[0]) if lines and lines[0].endswith("\n") else None
        if found != self._header:
            raise ConfigError(
                "the folder has answers to other prompts",
                {
                    "requested": f"{self._path}: {self._header}",
                    "found": found,
                    "options": "the same data and options as before | another --out",
                },
            )
        for line in lines[1:]:
            if line.endswith("\n"):  # the last line may have been cut off
                entry = json.loads(line)
                self.answers[entry["question"]] = tuple(entry["token_ids"])
        if not lines[-1].endswith("\n"):
            self._path.write_text("".join(lines[:-1]))


def generate(core: EngineCore, questions: Sequence[Question], file: AnswerFile, progress: AnswerProgress) -> int:
    """Answer the questions that ``file`` has no answer to, all together; return the tokens of the answers.

    Raises EngineDeadError where one fails.
    """
    waiting = deque(_requests(core, questions, file))
    token_ids: dict[str, list[int]] = {request.request_id: [] for request in waiting}
    num_tokens = 0
    while waiting or core.has_work:
        _feed(core, waiting, len(token_ids) - len(waiting))
        for update in core.step():
            own = token_ids[update.request_id]
            own += update.token_ids
            num_tokens += len(update.token_ids)
            if update.finish_reason is FinishReason.ERROR:
                raise EngineDeadError("an answer failed", {"found": update.error})
            if update.finish_reason is not None:
                file.add(int(update.request_id), tuple(token_ids.pop(update.request_id)))
        progress(len(file.answers), num_tokens)
    return num_tokens


def _requests(core: EngineCore, questions: Sequence[Question], file: AnswerFile) -> list[Request]:
    processor = InputProcessor(core.tokenizer, core.config)
    requests: list[Request] = []
    for number, question in enumerate(questions):
        if number not in file.answers:
            params = SamplingParams(
                temperature=question.temperature, max_tokens=question.max_tokens, seed=question.seed
            )
            requests += processor.process(str(number), question.prompt_token_ids, params)
    return requests


def _feed(core: EngineCore, waiting: deque[Request], num_unfinished: int) -> None:
    """Hand requests over as soon as a share of the engine's seats is free, as many as are free.

    Handed over one by one they would make every step one of prompts and tokens mixed, which takes several times as long
    as one that only decodes.
    """
    seats = core.config.scheduler.max_num_seqs
    if seats - num_unfinished < seats * _FREE_SEATS:
        return
    for _ in range(min(seats - num_unfinished, len(waiting))):
        try:
            core.add(waiting[0])
        except QueueFullError:
            return
        waiting.popleft()


def _digest(questions: Sequence[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        fields = (question.prompt_token_ids, question.temperature, question.max_tokens, question.seed)
        digest.update(json.dumps(fields).encode())
    return digest.hexdigest()
