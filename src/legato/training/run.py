"""A training run from files of prompts to a published head. Owns the order of its parts, and the folder it leaves.

::

    config.json, model.safetensors   the head, for any engine; written at each checkpoint
    training/invented.jsonl          prompts that the target made up
    training/answers.jsonl           the target's answers
    training/state.safetensors       where the run has come to
    training/log.jsonl               loss and acceptance on held-out prompts
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from legato.config.options import EngineOptions
from legato.engine.bootstrap import load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved, resolve
from legato.errors import ConfigError
from legato.loading.draft_head_config import parse_draft_head_config
from legato.models.causal_lm import CausalLM
from legato.speculative.eagle3 import ARCHITECTURES, auxiliary_layers
from legato.training.acceptance import Evaluation
from legato.training.batches import Text, cut, epoch_batches, make_batch, padded_length
from legato.training.corpus import AnsweringEngine, Corpus, collect
from legato.training.draft_vocabulary import choose_draft_vocabulary
from legato.training.head import TrainingHead
from legato.training.initial_weights import initial_weights, input_scale
from legato.training.objective import LossSums
from legato.training.progress import RunProgress
from legato.training.prompts import read_prompts
from legato.training.published import CONFIG, head_description, publish
from legato.training.questions import split_prompts
from legato.training.saved_state import load_state, save_state
from legato.training.settings import TrainingOptions
from legato.training.target import Target
from legato.training.trainer import Schedule, Trainer

_LOG, _STATE = "log.jsonl", "state.safetensors"
_TELL_EVERY = 10
"""Steps between two looks at the loss: each waits for the device."""
_NOT_DECIDING = ("resume", "evaluate_every", "checkpoint_every")
"""Options that a run which goes on may change."""


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
    kept = out / "training"
    if (kept / _STATE).exists() and not options.resume:
        details = {"requested": out, "found": kept / _STATE, "options": "--resume | another --out"}
        raise ConfigError("the folder holds a training run", details)
    prompts = read_prompts(data)
    others = read_prompts([Path(name) for name in options.held_out])
    engine = _sized(engine, options)
    resolved = resolve(engine)
    _check_head(resolved, options)
    split = split_prompts(prompts, others, options, seed=engine.seed)
    kept.mkdir(parents=True, exist_ok=True)
    model = load_model(resolved, BuildProgress(console))
    answering = AnsweringEngine(resolved, model, engine, progress, console)
    corpus = collect(answering, split, options, kept)
    answering.close()
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
    target = resolved.config.model
    describe = partial(
        head_description,
        target,
        draft_vocab_size=draft_vocab_size,
        intermediate_size=options.intermediate_size,
        dtype=resolved.config.dtype,
    )
    asked = parse_draft_head_config(describe(auxiliary_layers=options.auxiliary_layers), CONFIG, ARCHITECTURES)
    return describe(auxiliary_layers=auxiliary_layers(asked, target))


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
        seed = resolved.config.seed
        self._plan = [
            [corpus.training[index] for index in batch]
            for epoch in range(options.epochs)
            for batch in epoch_batches(corpus.training, options.batch_tokens, seed=seed, epoch=epoch)
        ]
        order = cut(range(len(corpus.held_out)), corpus.held_out, options.batch_tokens)
        self._held_out = [[corpus.held_out[index] for index in batch] for batch in order]
        self._draft_ids = self._choose_draft_ids(resolved, corpus)
        self._description = _head_description(resolved, options, len(self._draft_ids))
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
        sums = LossSums(options.unroll, self._draft_ids.device)
        evaluation = None
        for done, texts in enumerate(self._plan[first:], start=first + 1):
            self._trainer.learn(texts, done - 1, options.unroll, sums)
            if done % _TELL_EVERY == 0 or done == total:
                self._progress.step(done, total, sums.mean())
                sums = LossSums(options.unroll, self._draft_ids.device)
            if done % options.evaluate_every == 0 or done == total:
                evaluation = self._evaluate(done)
            if done % options.checkpoint_every == 0 or done == total:
                self._write(done)
        return self._evaluate(total) if evaluation is None else evaluation

    def _choose_draft_ids(self, resolved: Resolved, corpus: Corpus) -> torch.Tensor:
        """Return the target id of each draft id.  # [draft_vocab_size] int64"""
        vocab_size = resolved.config.model.vocab_size
        size = min(self._options.draft_vocab_size, vocab_size)
        answers = (text.token_ids[text.num_prompt_tokens :] for text in corpus.training)
        vocabulary = choose_draft_vocabulary(answers, size, vocab_size)
        self._progress.note(
            f"draft vocabulary: {size} of {vocab_size} tokens, {vocabulary.coverage:.2%} of those in the answers"
        )
        return torch.tensor(vocabulary.target_ids, device=resolved.device.torch_device)

    def _build(self, resolved: Resolved, model: CausalLM, seed: int) -> Trainer:
        """Return a trainer at its beginning."""
        config = parse_draft_head_config(self._description, CONFIG, ARCHITECTURES)
        layers = auxiliary_layers(config, resolved.config.model)
        block_size = resolved.config.cache.block_size
        batches = [*self._plan, *self._held_out]
        target = Target(
            resolved,
            model,
            layers,
            num_blocks=max(_num_blocks(texts, block_size) for texts in batches),
            max_num_texts=max(map(len, batches)),
        )
        batch, device = make_batch(self._plan[0]), self._draft_ids.device
        states = target.states(torch.from_numpy(batch.token_ids_np).to(device))
        answered = states.auxiliary.flatten(0, 1)[torch.from_numpy(batch.positions_np).to(device)]
        weights = initial_weights(config, model, self._draft_ids, seed=seed)
        schedule = Schedule(
            num_steps=len(self._plan),
            warmup_steps=self._options.warmup_steps,
            learning_rate=self._options.learning_rate,
        )
        return Trainer(target, TrainingHead(config, weights, input_scale(answered)), self._draft_ids, schedule)

    def _restore(self) -> int:
        """Return the steps that were taken before, with the trainer and the log as they were after them."""
        log, file = self._out / "training" / _LOG, self._out / "training" / _STATE
        if not (self._options.resume and file.exists()):
            log.unlink(missing_ok=True)
            return 0
        step = load_state(file, self._trainer, self._made_with)
        self._progress.note(f"going on from step {step} of {len(self._plan)}")
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= step))
        return step

    def _evaluate(self, step: int) -> Evaluation:
        evaluation = self._trainer.evaluate(self._held_out, self._options.unroll)
        self._progress.evaluated(step, evaluation)
        with (self._out / "training" / _LOG).open("a") as file:
            file.write(json.dumps({"step": step, **asdict(evaluation)}) + "\n")
        return evaluation

    def _write(self, step: int) -> None:
        publish(self._out, self._description, self._trainer.head.published(), self._draft_ids)
        save_state(self._out / "training" / _STATE, self._trainer, step, self._made_with)


def _num_blocks(texts: Sequence[Text], block_size: int) -> int:
    """Return the blocks that a batch takes."""
    return len(texts) * -(-padded_length(max(len(text.token_ids) for text in texts)) // block_size)
