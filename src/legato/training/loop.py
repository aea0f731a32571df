"""The loop of a run: batches, evaluations, checkpoints, and when it ends. Owns what is written on the way."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from legato.engine.resolve import Resolved
from legato.loading.draft_head_config import parse_draft_head_config
from legato.models.causal_lm import CausalLM
from legato.speculative.eagle3 import ARCHITECTURES, auxiliary_layers
from legato.training.acceptance import Evaluation
from legato.training.batches import Text, cut, epoch_batches, make_batch, padded_length
from legato.training.corpus import Corpus
from legato.training.draft_vocabulary import choose_draft_vocabulary
from legato.training.head import TrainingHead
from legato.training.initial_weights import initial_weights, input_scale
from legato.training.interruption import interruptions
from legato.training.objective import LossSums
from legato.training.progress import RunProgress
from legato.training.published import CONFIG, describe_head, publish
from legato.training.saved_state import STATE, load_state, save_state
from legato.training.settings import TrainingOptions
from legato.training.target import Target
from legato.training.time_budget import Pace, StepTimer, TimeBudget
from legato.training.trainer import Schedule, Trainer

_LOG, SECONDS = "log.jsonl", "seconds.json"
_TELL_EVERY = 10
"""Steps between two looks at the loss: each waits for the device."""
_NOT_DECIDING = ("resume", "evaluate_every", "checkpoint_every", "max_minutes")
"""Options that a run which goes on may change."""


class TrainingLoop:
    """A plan of batches, a trainer that takes them, and what there is to show for it."""

    def __init__(
        self,
        resolved: Resolved,
        model: CausalLM,
        corpus: Corpus,
        options: TrainingOptions,
        out: Path,
        progress: RunProgress,
        budget: TimeBudget,
    ) -> None:
        self._options, self._out, self._progress, self._budget = options, out, progress, budget
        self._synchronize = resolved.device.synchronize
        seed = resolved.config.seed
        self._plan = [
            [corpus.training[index] for index in batch]
            for epoch in range(options.epochs)
            for batch in epoch_batches(corpus.training, options.batch_tokens, seed=seed, epoch=epoch)
        ]
        self._num_steps: int | None = None if options.max_minutes is not None else len(self._plan)
        """Steps of the plan that are taken; None until it is known how many fit."""
        order = cut(range(len(corpus.held_out)), corpus.held_out, options.batch_tokens)
        self._held_out = [[corpus.held_out[index] for index in batch] for batch in order]
        self._draft_ids = self._choose_draft_ids(resolved, corpus)
        self._description = describe_head(resolved, options, len(self._draft_ids))
        self._made_with = {
            **{name: value for name, value in asdict(options).items() if name not in _NOT_DECIDING},
            "model": resolved.config.model_name,
            "dtype": resolved.config.dtype,
            "seed": seed,
        }
        self._trainer = self._build(resolved, model, seed)
        self._ending_s = -math.inf
        """Seconds that the end of the run takes, where its steps were made to fit."""
        self._latest: tuple[int, Evaluation] | None = None

    def train(self) -> Evaluation:
        """Take all steps that are left; return the evaluation at the end.

        Raises ConfigError where none fits into the time, and KeyboardInterrupt behind a step that Ctrl-C came in; both
        leave a checkpoint.
        """
        options, sums = self._options, self._no_losses()
        step = self._restore()
        timer = None
        if self._num_steps is None:
            self._budget.check("all answers")
            timer = StepTimer(self._budget, self._synchronize)
        with interruptions() as interrupted:
            while step < self._end:
                texts = self._plan[step]
                self._trainer.learn(texts, step, options.unroll, sums)
                step += 1
                if timer is not None and timer.is_over(_work(texts)) and step < self._end:
                    self._decide(step, timer.unit_s)
                    timer = None
                if self._budget.must_end(self._ending_s) and step < self._end:
                    self._progress.note(f"the time is over at step {step:,} of {self._end:,}: later steps were slower")
                    self._num_steps = step
                last, stopped = step == self._end, interrupted()
                if step % _TELL_EVERY == 0 or last:
                    self._progress.step(step, self._end, sums.mean())
                    sums = self._no_losses()
                if step % options.evaluate_every == 0 or last:
                    self._evaluate(step)
                if step % options.checkpoint_every == 0 or last or stopped:
                    self._write(step)
                if stopped and not last:
                    self._progress.note(f"stopped after step {step:,} of {self._end:,}: --resume goes on from there")
                    raise KeyboardInterrupt
        return self._evaluate(step)

    @property
    def _end(self) -> int:
        """The number of steps, as far as it is known."""
        return len(self._plan) if self._num_steps is None else self._num_steps

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
            warmup_steps=min(self._options.warmup_steps, len(self._plan) // 2),
            learning_rate=self._options.learning_rate,
        )
        return Trainer(target, TrainingHead(config, weights, input_scale(answered)), self._draft_ids, schedule)

    def _restore(self) -> int:
        """Return the steps that were taken before, with the trainer, the log and the length as they were after them."""
        log, file = self._out / "training" / _LOG, self._out / "training" / STATE
        if not (self._options.resume and file.exists()):
            log.unlink(missing_ok=True)
            return 0
        step, num_steps = load_state(file, self._trainer, self._made_with)
        if num_steps is not None:
            self._end_at(num_steps)
        self._progress.note(f"going on from step {step:,} of {self._end:,}")
        if num_steps is not None and self._options.max_minutes is not None:
            self._progress.note("the number of steps was decided before: --max-minutes does not change it")
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= step))
        return step

    def _decide(self, step: int, unit_s: float) -> None:
        """Decide how many steps fit, by what ``step`` of them took, an evaluation, and a checkpoint, made here.

        Raises ConfigError where no more fits.
        """
        evaluation_s = self._seconds_for(lambda: self._evaluate(step))
        pace = Pace(
            unit_s=unit_s,
            evaluation_s=evaluation_s,
            checkpoint_s=self._seconds_for(lambda: self._write(step)),
            evaluate_every=self._options.evaluate_every,
            checkpoint_every=self._options.checkpoint_every,
        )
        work = [_work(texts) for texts in self._plan]
        num_steps = pace.steps_that_fit(work, step, self._budget.left_s())
        if num_steps == step:
            raise self._budget.refusal(f"{step} steps, which show how long one takes,")
        self._end_at(num_steps)
        self._ending_s = pace.evaluation_s + pace.checkpoint_s
        self._save(step)
        each = unit_s * sum(work[:num_steps]) / num_steps
        fit = f"{num_steps:,} of {len(work):,} steps fit in {self._options.max_minutes:.1f} minutes"
        self._progress.note(f"{fit} ({each:.2g} s each)")

    def _end_at(self, num_steps: int) -> None:
        """Let the run, and the fall of its learning rate, end at step ``num_steps``."""
        self._num_steps = num_steps
        self._trainer.schedule = replace(self._trainer.schedule, num_steps=num_steps)

    def _seconds_for(self, work: Callable[[], object]) -> float:
        started = self._budget.stopwatch.seconds()
        work()
        return self._budget.stopwatch.seconds() - started

    def _evaluate(self, step: int) -> Evaluation:
        """Return how good the head is after ``step`` steps; it is found out, told and kept once."""
        if self._latest is None or self._latest[0] != step:
            evaluation = self._trainer.evaluate(self._held_out, self._options.unroll)
            self._progress.evaluated(step, evaluation)
            with (self._out / "training" / _LOG).open("a") as file:
                file.write(json.dumps({"step": step, **asdict(evaluation)}) + "\n")
            self._latest = step, evaluation
        return self._latest[1]

    def _write(self, step: int) -> None:
        publish(self._out, self._description, self._trainer.head.published(), self._draft_ids)
        self._save(step)
        self._budget.stopwatch.keep(self._out / "training" / SECONDS)

    def _save(self, step: int) -> None:
        save_state(self._out / "training" / STATE, self._trainer, step, self._num_steps, self._made_with)

    def _no_losses(self) -> LossSums:
        return LossSums(self._options.unroll, self._draft_ids.device)


def _work(texts: Sequence[Text]) -> int:
    """Return what a step on ``texts`` costs: a position that is read and one that is learned take about the same."""
    length = padded_length(max(len(text.token_ids) for text in texts))
    return len(texts) * length + sum(text.num_learned for text in texts)


def _num_blocks(texts: Sequence[Text], block_size: int) -> int:
    """Return the blocks that a batch takes."""
    return len(texts) * -(-padded_length(max(len(text.token_ids) for text in texts)) // block_size)
