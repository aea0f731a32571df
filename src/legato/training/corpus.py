"""From prompts to texts: whom a run asks. Owns that an engine is built only where answers are missing."""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor
from legato.engine.resolve import Resolved
from legato.errors import ConfigError
from legato.loading.load_tokenizer import load_tokenizer
from legato.models.causal_lm import CausalLM
from legato.training.answers import AnswerFile, Question, generate
from legato.training.batches import Text
from legato.training.progress import RunProgress
from legato.training.prompts import Conversation
from legato.training.questions import (
    Split,
    held_out_questions,
    invented_prompts,
    inventing_questions,
    prompt_token_ids,
    training_questions,
)
from legato.training.settings import TrainingOptions
from legato.training.time_budget import TimeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The target's answers, as texts."""

    training: list[Text]
    held_out: list[Text]


class AnsweringEngine:
    """The engine that answers, built where there is something to answer."""

    def __init__(
        self,
        resolved: Resolved,
        model: CausalLM,
        engine: EngineOptions,
        progress: RunProgress,
        console: Console | None,
        budget: TimeBudget,
    ) -> None:
        self.tokenizer = load_tokenizer(resolved.source)
        self.processor = InputProcessor(self.tokenizer, resolved.config)
        self.seed = engine.seed
        self.progress = progress
        self._resolved, self._model, self._engine, self._console = resolved, model, engine, console
        self._budget = budget
        self._core: EngineCore | None = None

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        own = () if self.tokenizer is None else self.tokenizer.eos_token_ids
        return frozenset((*self._resolved.config.model.eos_token_ids, *own))

    def token_ids(self, prompt: Conversation) -> tuple[int, ...]:
        """Return a prompt as the target reads it."""
        return prompt_token_ids(self.processor, self.tokenizer, prompt)

    def answers(self, what: str, questions: Sequence[Question], path: Path) -> list[tuple[int, ...]]:
        """Return an answer to each question, of ``path`` as far as they are there.

        Raises ConfigError where the time is over before all are there.
        """
        file = AnswerFile(path, questions, self._resolved.config.model_name)
        if len(file.answers) < len(questions):
            if self._core is None:
                self._core = build_engine(self._engine, self._console, model=self._model)
            started = time.perf_counter()
            tell = self.progress.answering(what, len(questions))

            def told(done: int, num_tokens: int) -> None:
                tell(done, num_tokens)
                self._budget.check(f"{done} of {len(questions)} {what}")

            num_tokens = generate(self._core, questions, file, told)
            seconds = time.perf_counter() - started
            self.progress.note(f"{what}: {num_tokens} tokens in {seconds:.0f} s, {num_tokens / seconds:.0f} a second")
        return [file.answers[number] for number in range(len(questions))]

    def close(self) -> None:
        """Give back all that the engine holds but the model."""
        self._core = None
        gc.collect()
        self._resolved.device.release_unused_memory()


def collect(engine: AnsweringEngine, split: Split, options: TrainingOptions, folder: Path) -> Corpus:
    """Return the target's answers to all prompts, those it invents included, and keep them in ``folder``.

    Raises ConfigError where nothing is left that could be learned from.
    """
    training = [*split.training, *_invented(engine, split, options, folder)]
    to_train = training_questions([engine.token_ids(prompt) for prompt in training], options, seed=engine.seed)
    to_evaluate = held_out_questions([engine.token_ids(prompt) for prompt in split.held_out], options)
    questions = [*to_train, *to_evaluate]
    answers = engine.answers("answers", questions, folder / "answers.jsonl")
    texts = [
        Text(token_ids=question.prompt_token_ids + answer, num_prompt_tokens=len(question.prompt_token_ids))
        for question, answer in zip(questions, answers, strict=True)
    ]
    corpus = Corpus(
        training=[text for text in texts[: len(to_train)] if text.num_learned],
        held_out=[text for text in texts[len(to_train) :] if text.num_learned],
    )
    if not corpus.training or not corpus.held_out:
        found = f"{len(corpus.training)} texts to train on and {len(corpus.held_out)} to evaluate on, of "
        found += f"{len(training)} and {len(split.held_out)} prompts"
        options_left = "more --data | a longer --max-length"
        raise ConfigError("there is too little to learn from", {"found": found, "options": options_left})
    engine.progress.note(f"to train on: {_described(training, corpus.training)}")
    engine.progress.note(f"to evaluate on: {_described(split.held_out, corpus.held_out)}")
    return corpus


def _invented(engine: AnsweringEngine, split: Split, options: TrainingOptions, folder: Path) -> list[Conversation]:
    """Return what the target makes up, but for prompts that are there already."""
    questions = inventing_questions(engine.processor, engine.tokenizer, options, seed=engine.seed)
    if not questions or engine.tokenizer is None:
        return []
    answers = engine.answers("prompts invented", questions, folder / "invented.jsonl")
    known = {*split.training, *split.held_out}
    invented = invented_prompts(engine.tokenizer, engine.end_token_ids, answers)
    return [prompt for prompt in invented if prompt not in known]


def _described(prompts: Sequence[Conversation], texts: Sequence[Text]) -> str:
    num_tokens = sum(len(text.token_ids) for text in texts)
    num_learned = sum(text.num_learned for text in texts)
    return f"{len(prompts)} prompts, {len(texts)} texts with {num_tokens} tokens, {num_learned} of them learned"
