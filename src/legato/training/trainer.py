"""Training of a head, batch by batch. Owns what a step is; files and progress are the caller's.

A step depends on the weights, the optimiser's state, its number and the schedule alone: nothing random is drawn in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.training.acceptance import AcceptanceCounts, Evaluation
from legato.training.batches import Batch, Text, make_batch
from legato.training.head import TrainingHead
from legato.training.objective import LossSums, soft_cross_entropy, weighted
from legato.training.target import Lesson, Target

_BETAS = (0.9, 0.95)
_MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate of each step: a linear rise, then half a cosine down to nothing.

    The rise is the same however long the run is; a run of less than twice the warm-up rises for its first half only,
    and falls from where it has come to.
    """

    num_steps: int
    warmup_steps: int
    learning_rate: float

    def at(self, step: int) -> float:
        """Return the learning rate of step ``step``, counted from 0."""
        rise = min(self.warmup_steps, self.num_steps // 2)
        highest = self.learning_rate * max(rise, 1) / max(self.warmup_steps, 1)
        if step < rise:
            return highest * (step + 1) / rise
        progress = (step - rise) / max(1, self.num_steps - rise)
        return highest * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A batch as the target sees it, and the head's states over it."""

    states: list[torch.Tensor]  # [num_rows of the step, hidden_size] of each step
    rows: list[torch.Tensor]  # [num_rows of the step] int64: what of the lesson they are held to
    lesson: Lesson
    counted: torch.Tensor  # [num_rows] float32: 1 where the likeliest token can be drafted


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

    def learn(self, texts: Sequence[Text], step: int, num_unrolled: int, sums: LossSums) -> None:
        """Take step ``step`` on one batch, and add its loss to ``sums``. Does not wait for the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.at(step)
        losses, counts = self._losses(self._see(make_batch(texts), num_unrolled))
        self.optimizer.zero_grad(set_to_none=True)
        weighted(losses / counts.clamp(min=1)).backward()
        torch.nn.utils.clip_grad_norm_(self.head.weights.values(), _MAX_GRADIENT_NORM)
        self.optimizer.step()
        sums.add(losses, counts)

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Sequence[Text]], num_unrolled: int) -> Evaluation:
        """Return loss and acceptance on texts that the target wrote greedily."""
        sums, acceptance = LossSums(num_unrolled, self.head.device), AcceptanceCounts(num_unrolled)
        for texts in batches:
            batch = make_batch(texts)
            seen = self._see(batch, num_unrolled)
            sums.add(*self._losses(seen))
            drafts = [self._draft_ids[self.head.logits(hidden).argmax(-1)].cpu().numpy() for hidden in seen.states]
            following = batch.token_ids_np.ravel()[batch.positions_np + 2]
            acceptance.add(drafts, seen.lesson.greedy.cpu().numpy(), following, batch.left_np)
        return acceptance.evaluation(sums.mean())

    def _see(self, batch: Batch, num_unrolled: int) -> _Seen:
        device = self.head.device
        token_ids, positions = upload(batch.token_ids_np, device), upload(batch.positions_np, device)
        states = self.target.states(token_ids)
        # What a row learns first is what the target says after the token that the head reads there.
        lesson = self.target.lesson(states.final.index_select(0, positions + 1), self._draft_ids)
        unrolled = self.head.unroll(self.target.embed(token_ids), states.auxiliary, num_unrolled)
        rows = [upload(np.flatnonzero(batch.left_np >= step), device) for step in range(num_unrolled)]
        return _Seen(
            states=[
                hidden.flatten(0, 1).index_select(0, positions.index_select(0, own))
                for hidden, own in zip(unrolled, rows, strict=True)
            ],
            rows=[own + step for step, own in enumerate(rows)],
            lesson=lesson,
            counted=self._can_draft[lesson.greedy].float(),
        )

    def _losses(self, seen: _Seen) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses of a batch and the positions that count, summed for each step, both [num_steps]."""
        lesson, counted = seen.lesson.probabilities, [seen.counted.index_select(0, rows) for rows in seen.rows]
        losses = [
            soft_cross_entropy(self.head.logits(hidden), lesson.index_select(0, rows), own)
            for hidden, rows, own in zip(seen.states, seen.rows, counted, strict=True)
        ]
        return torch.stack(losses), torch.stack([own.sum() for own in counted])
