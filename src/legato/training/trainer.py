"""Training of a head, batch by batch. Owns what a step is; files and progress are the caller's.

A step depends on the weights, the optimiser's state and its number alone: nothing random is drawn in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from legato.device.host_memory import upload
from legato.training.batches import Batch, Text, make_batch
from legato.training.head import TrainingHead
from legato.training.objective import STEP_WEIGHT, Evaluation, Tally, soft_cross_entropy
from legato.training.target import Lesson, Target

_BETAS = (0.9, 0.95)
_MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate of each step: a linear rise, then half a cosine down to nothing."""

    num_steps: int
    warmup_steps: int
    learning_rate: float

    def at(self, step: int) -> float:
        """Return the learning rate of step ``step``, counted from 0."""
        warmup = min(self.warmup_steps, self.num_steps // 2)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.num_steps - warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unrolled:
    """A batch seen by target and head; lists have one entry per step."""

    losses: list[torch.Tensor]  # scalars, sums over the positions that count
    counts: list[torch.Tensor]  # scalars, such positions
    drafts: list[torch.Tensor]  # [num_rows of the step] int64, target ids
    rows: list[torch.Tensor]  # [num_rows of the step] int64
    lesson: Lesson
    following: torch.Tensor  # [num_rows] int64, the texts' own tokens


class Trainer:
    """A head with its optimiser, taught by a target."""

    def __init__(self, target: Target, head: TrainingHead, draft_ids: torch.Tensor, schedule: Schedule) -> None:
        """``draft_ids`` [draft_vocab_size] int64: the target id of each draft id."""
        self.target = target
        self.head = head
        self.schedule = schedule
        self.optimizer = torch.optim.AdamW(
            head.weights.values(), betas=_BETAS, weight_decay=0.0, fused=head.device.type != "cpu"
        )
        self._draft_ids = draft_ids
        self._can_draft = torch.zeros(head.config.model.vocab_size, dtype=torch.bool, device=head.device)
        self._can_draft[draft_ids] = True

    def learn(self, texts: Sequence[Text], step: int, num_unrolled: int, tally: Tally) -> None:
        """Take step ``step`` on one batch, and add its loss to ``tally``. Does not wait for the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.at(step)
        with self.head.autocast():
            seen = self._unrolled(make_batch(texts), num_unrolled)
        means = [loss / count.clamp(min=1) for loss, count in zip(seen.losses, seen.counts, strict=True)]
        loss = torch.stack([STEP_WEIGHT**index * mean for index, mean in enumerate(means)]).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.weights.values(), _MAX_GRADIENT_NORM)
        self.optimizer.step()
        _add(seen, tally)

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Sequence[Text]], num_unrolled: int) -> Evaluation:
        """Return loss and acceptance on held-out texts."""
        tally = Tally(num_unrolled, self.head.device)
        for texts in batches:
            with self.head.autocast():
                seen = self._unrolled(make_batch(texts), num_unrolled)
            _add(seen, tally)
        return tally.evaluation()

    def _unrolled(self, batch: Batch, num_unrolled: int) -> _Unrolled:
        device = self.head.device
        token_ids = upload(batch.token_ids_np, device)
        positions = upload(batch.positions_np, device)
        states = self.target.states(token_ids)
        # What a row learns first is what the target says after the token that the head reads there.
        lesson = self.target.lesson(states.final.index_select(0, positions + 1), self._draft_ids)
        counted = self._can_draft[lesson.greedy].float()
        steps = [upload(np.flatnonzero(batch.left_np >= step), device) for step in range(num_unrolled)]
        losses, drafts = [], []
        for step, hidden in enumerate(self.head.unroll(self.target.embed(token_ids), states.auxiliary, num_unrolled)):
            chosen = hidden.flatten(0, 1).index_select(0, positions.index_select(0, steps[step]))
            # The logits are larger than all else together: they are computed again for the gradient.
            loss, likeliest = checkpoint(
                self._judge, chosen, lesson.probabilities, counted, steps[step] + step, use_reentrant=False
            )
            losses.append(loss)
            drafts.append(self._draft_ids.index_select(0, likeliest))
        return _Unrolled(
            losses=losses,
            counts=[counted.index_select(0, rows + step).sum() for step, rows in enumerate(steps)],
            drafts=drafts,
            rows=steps,
            lesson=lesson,
            following=token_ids.flatten().index_select(0, positions + 2),
        )

    def _judge(
        self, hidden: torch.Tensor, probabilities: torch.Tensor, counted: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the summed loss of ``hidden`` [n, hidden_size], and the likeliest draft id of each, [n] int64.

        ``rows`` [n] int64: the rows of ``probabilities`` and ``counted`` that they are held to.
        """
        logits = self.head.logits(hidden)
        loss = soft_cross_entropy(logits, probabilities.index_select(0, rows), counted.index_select(0, rows))
        return loss, logits.detach().argmax(-1)


def _add(seen: _Unrolled, tally: Tally) -> None:
    for step, (loss, count) in enumerate(zip(seen.losses, seen.counts, strict=True)):
        tally.add_loss(step, loss.detach(), count)
    tally.add_drafts(seen.drafts, seen.rows, seen.lesson, seen.following)
