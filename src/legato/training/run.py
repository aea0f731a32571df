"""A training run from files of prompts to a published head. Owns the order of its parts, and the folder it leaves.

::

    config.json, model.safetensors   the head, for any engine; written at each checkpoint
    training/invented.jsonl          prompts that the target made up
    training/answers.jsonl           the target's answers
    training/state.safetensors       where the run has come to
    training/log.jsonl               loss and acceptance on held-out prompts
"""

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine, load_model
from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor
from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved, resolve
from legato.errors import ConfigError
from legato.loading.draft_head_config import parse_draft_head_config
from legato.loading.load_tokenizer import load_tokenizer
from legato.models.causal_lm import CausalLM
from legato.speculative.eagle3 import ARCHITECTURES, auxiliary_layers
from legato.training.answers import AnswerFile, Question, generate
from legato.training.batches import Text, cut, epoch_batches, make_batch, padded_length
from legato.training.draft_vocabulary import DraftVocabulary, choose_draft_vocabulary
from legato.training.head import TrainingHead
from legato.training.initial_weights import initial_weights, input_scale
from legato.training.objective import Evaluation, Tally
from legato.training.prompts import read_prompts
from legato.training.published import CONFIG, head_description, publish
from legato.training.questions import (
    held_out_questions,
    invented_prompts,
    inventing_questions,
    prompt_token_ids,
    split_prompts,
    training_questions,
)
from legato.training.saved_state import load_state, save_state
from legato.training.settings import TrainingOptions
from legato.training.target import Target
from legato.training.trainer import Schedule, Trainer

_TELL_EVERY = 10
"""Steps between two looks at the loss: each waits for the device."""
_NOT_DECIDING = ("resume", "evaluate_every", "checkpoint_every")
"""Options that a run which goes on may change."""


class RunProgress(Protocol):
    """Whom a run tells how it goes."""

    def note(self, text: str) -> None:
        """Say what was decided or found."""
        ...

    def answering(self, what: str, total: int) -> Callable[[int, int], None]:
        """Begin to generate; returns the function to tell (answers, tokens)."""
        ...

    def step(self, done: int, total: int, loss: float) -> None:
        """Tell the mean loss of the latest steps."""
        ...

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Tell how the head does on held-out prompts after ``step`` steps."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The target's answers, as texts."""

    training: list[Text]
    held_out: list[Text]


def train_drafter(
    data: Sequence[Path],
    out: Path,
    options: TrainingOptions,
    engine: EngineOptions,
    progress: RunProgress,
    console: Console | None = None,
) -> Evaluation:
    """Train a head on the target's answers to the prompts of ``data``, leave it in ``out``, and return how good it is.

    Raises ConfigError, ModelError or RequestError before anything is generated where the run cannot be had.
    """
    options.check()
    state_file = out / "training" / "state.safetensors"
    if state_file.exists() and not options.resume:
        details = {"requested": out, "found": state_file.name, "options": "--resume | another --out"}
        raise ConfigError("the folder holds a training run", details)
    prompts = read_prompts(data)
    others = read_prompts([Path(name) for name in options.held_out])
    engine = _sized(engine, options)
    resolved = resolve(engine)
    _check_head(resolved, options)
    state_file.parent.mkdir(parents=True, exist_ok=True)
    model = load_model(resolved, BuildProgress(console))
    asked = _Asked(resolved, model, engine, progress, console)
    split = split_prompts(prompts, others, options, seed=engine.seed)
    corpus = _corpus(asked, split.training, split.held_out, options, out / "training")
    asked.close()
    return _Run(resolved, model, corpus, options, out, progress).train()


def _sized(engine: EngineOptions, options: TrainingOptions) -> EngineOptions:
    """Return options for an engine whose sequences are those that are trained on."""
    return engine if engine.max_model_len is not None else replace(engine, max_model_len=options.max_length)


def _check_head(resolved: Resolved, options: TrainingOptions) -> None:
    """Raise ConfigError where the head cannot be: its layers, its vocabulary or its texts."""
    longest = resolved.config.scheduler.max_model_len
    if options.max_length > longest:
        details = {"requested": options.max_length, "limit": f"--max-model-len {longest}"}
        raise ConfigError("--max-length is longer than the engine's sequences", details)
    _head_description(resolved, options, 1)


def _head_description(resolved: Resolved, options: TrainingOptions, draft_vocab_size: int) -> dict[str, Any]:
    """Return the head's config.json, with the layers that it reads. Raises ConfigError where the target lacks them."""
    model, dtype = resolved.config.model, resolved.config.dtype
    described = head_description(model, options.auxiliary_layers, draft_vocab_size, dtype)
    layers = auxiliary_layers(parse_draft_head_config(described, CONFIG, ARCHITECTURES), model)
    return head_description(model, layers, draft_vocab_size, dtype)


class _Asked:
    """The engine that answers, built where there is something to answer."""

    def __init__(
        self,
        resolved: Resolved,
        model: CausalLM,
        engine: EngineOptions,
        progress: RunProgress,
        console: Console | None,
    ) -> None:
        self.tokenizer = load_tokenizer(resolved.source)
        self.processor = InputProcessor(self.tokenizer, resolved.config)
        self.seed = engine.seed
        self.progress = progress
        self._resolved, self._model, self._engine, self._console = resolved, model, engine, console
        self._core: EngineCore | None = None

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        own = () if self.tokenizer is None else self.tokenizer.eos_token_ids
        return frozenset((*self._resolved.config.model.eos_token_ids, *own))

    def answers(self, what: str, questions: Sequence[Question], path: Path) -> list[tuple[int, ...]]:
        """Return an answer to each question, of ``path`` as far as they are there."""
        file = AnswerFile(path, questions, self._resolved.config.model_name)
        if len(file.answers) < len(questions):
            if self._core is None:
                self._core = build_engine(self._engine, self._console, model=self._model)
            generate(self._core, questions, file, self.progress.answering(what, len(questions)))
        return [file.answers[number] for number in range(len(questions))]

    def close(self) -> None:
        """Give back all that the engine holds but the model."""
        self._core = None
        gc.collect()
        self._resolved.device.release_unused_memory()


def _corpus(
    asked: _Asked,
    training: Sequence[tuple[tuple[str, str], ...]],
    held_out: Sequence[tuple[tuple[str, str], ...]],
    options: TrainingOptions,
    folder: Path,
) -> Corpus:
    """Return the target's answers to all prompts, those it invents included."""
    inventing = inventing_questions(asked.processor, asked.tokenizer, options, seed=asked.seed)
    if inventing and asked.tokenizer is not None:
        told = asked.answers("prompts invented", inventing, folder / "invented.jsonl")
        invented = invented_prompts(asked.tokenizer, asked.end_token_ids, told)
        known = {*training, *held_out}
        training = [*training, *(prompt for prompt in invented if prompt not in known)]
    ids = [prompt_token_ids(asked.processor, asked.tokenizer, prompt) for prompt in training]
    to_train = training_questions(ids, options, seed=asked.seed)
    kept = [prompt_token_ids(asked.processor, asked.tokenizer, prompt) for prompt in held_out]
    to_evaluate = held_out_questions(kept, options)
    answers = asked.answers("answers", [*to_train, *to_evaluate], folder / "answers.jsonl")
    texts = [
        Text(token_ids=question.prompt_token_ids + answer, num_prompt_tokens=len(question.prompt_token_ids))
        for question, answer in zip([*to_train, *to_evaluate], answers, strict=True)
    ]
    corpus = Corpus(
        training=[text for text in texts[: len(to_train)] if text.num_learned],
        held_out=[text for text in texts[len(to_train) :] if text.num_learned],
    )
    asked.progress.note(
        f"{len(training)} prompts to train on, {len(held_out)} held out; "
        f"{len(corpus.training)} and {len(corpus.held_out)} texts with "
        f"{sum(len(text.token_ids) for text in corpus.training)} and "
        f"{sum(len(text.token_ids) for text in corpus.held_out)} tokens"
    )
    if not corpus.training or not corpus.held_out:
        details = {"found": f"{len(corpus.training)} texts to train on, {len(corpus.held_out)} to evaluate on"}
        raise ConfigError("the answers are too short to learn from", details | {"options": "more --data"})
    return corpus


class _Run:
    """The training itself: a plan of batches, a trainer, and what is written on the way."""

    def __init__(
        self,
        resolved: Resolved,
        model: CausalLM,
        corpus: Corpus,
        options: TrainingOptions,
        out: Path,
        progress: RunProgress,
    ) -> None:
        self._options, self._out, self._progress = options, out, progress
        self._corpus = corpus
        seed = resolved.config.seed
        self._plan = [
            batch
            for epoch in range(options.epochs)
            for batch in epoch_batches(corpus.training, options.batch_tokens, seed=seed, epoch=epoch)
        ]
        order = cut(range(len(corpus.held_out)), corpus.held_out, options.batch_tokens)
        self._held_out = [[corpus.held_out[index] for index in batch] for batch in order]
        vocabulary = self._vocabulary(resolved)
        self._draft_ids = torch.tensor(vocabulary.target_ids, device=resolved.device.torch_device)
        self._description = _head_description(resolved, options, len(vocabulary.target_ids))
        self._made_with = {
            **{name: value for name, value in asdict(options).items() if name not in _NOT_DECIDING},
            "model": resolved.config.model_name,
            "dtype": resolved.config.dtype,
            "seed": seed,
        }
        self._trainer = self._build(resolved, model, seed)

    def train(self) -> Evaluation:
        """Take all steps that are left; return the evaluation at the end."""
        options, total = self._options, len(self._plan)
        first = self._restore()
        tally = Tally(options.unroll, self._draft_ids.device)
        evaluation = None
        for step in range(first, total):
            texts = [self._corpus.training[index] for index in self._plan[step]]
            self._trainer.learn(texts, step, options.unroll, tally)
            done = step + 1
            if done % _TELL_EVERY == 0 or done == total:
                self._progress.step(done, total, tally.evaluation().loss)
                tally = Tally(options.unroll, self._draft_ids.device)
            if done % options.evaluate_every == 0 or done == total:
                evaluation = self._evaluate(done)
            if done % options.checkpoint_every == 0 or done == total:
                self._write(done)
        return self._evaluate(total) if evaluation is None else evaluation

    def _vocabulary(self, resolved: Resolved) -> DraftVocabulary:
        vocab_size = resolved.config.model.vocab_size
        size = min(self._options.draft_vocab_size, vocab_size)
        answers = (text.token_ids[text.num_prompt_tokens :] for text in self._corpus.training)
        vocabulary = choose_draft_vocabulary(answers, size, vocab_size)
        self._progress.note(
            f"draft vocabulary: {size} of {vocab_size} tokens, {vocabulary.coverage:.2%} of those in the answers"
        )
        return vocabulary

    def _build(self, resolved: Resolved, model: CausalLM, seed: int) -> Trainer:
        config = parse_draft_head_config(self._description, CONFIG, ARCHITECTURES)
        layers = auxiliary_layers(config, resolved.config.model)
        target = Target(resolved, model, layers, num_blocks=self._num_blocks(resolved.config.cache.block_size))
        batch = make_batch([self._corpus.training[index] for index in self._plan[0]])
        device = self._draft_ids.device
        states = target.states(torch.from_numpy(batch.token_ids_np).to(device))
        answered = states.auxiliary.flatten(0, 1)[torch.from_numpy(batch.positions_np).to(device)]
        weights = initial_weights(config, model, self._draft_ids, seed=seed)
        head = TrainingHead(config, weights, input_scale(answered))
        schedule = Schedule(
            num_steps=len(self._plan),
            warmup_steps=self._options.warmup_steps,
            learning_rate=self._options.learning_rate,
        )
        return Trainer(target, head, self._draft_ids, schedule)

    def _num_blocks(self, block_size: int) -> int:
        """Return the blocks of the largest batch."""
        batches = [[self._corpus.training[index] for index in batch] for batch in self._plan] + self._held_out
        return max(
            len(texts) * -(-padded_length(max(len(text.token_ids) for text in texts)) // block_size)
            for texts in batches
        )

    def _restore(self) -> int:
        """Return the steps that were taken before, with the trainer as it was after them."""
        file = self._out / "training" / "state.safetensors"
        if not (self._options.resume and file.exists()):
            self._log_file.unlink(missing_ok=True)
            return 0
        step = load_state(file, self._trainer, self._made_with)
        self._progress.note(f"going on from step {step} of {len(self._plan)}")
        kept = [line for line in self._log_lines() if json.loads(line)["step"] <= step]
        self._log_file.write_text("".join(f"{line}\n" for line in kept))
        return step

    def _evaluate(self, step: int) -> Evaluation:
        evaluation = self._trainer.evaluate(self._held_out, self._options.unroll)
        self._progress.evaluated(step, evaluation)
        entry = {"step": step, "loss": evaluation.loss, "acceptance_rates": evaluation.acceptance_rates}
        with self._log_file.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return evaluation

    def _write(self, step: int) -> None:
        publish(self._out, self._description, self._trainer.head.published(), self._draft_ids)
        save_state(self._out / "training" / "state.safetensors", self._trainer, step, self._made_with)

    @property
    def _log_file(self) -> Path:
        return self._out / "training" / "log.jsonl"

    def _log_lines(self) -> list[str]:
        return self._log_file.read_text().splitlines() if self._log_file.exists() else []
