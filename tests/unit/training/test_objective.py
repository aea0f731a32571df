"""Acceptance is that of greedy decoding; the loss is a cross entropy."""

import numpy as np
import pytest
import torch

from legato.training.acceptance import AcceptanceCounts, walk
from legato.training.objective import LossSums, soft_cross_entropy
from legato.training.trainer import Schedule


def counted(drafts: list[list[int]], greedy: list[int], following: list[int]) -> AcceptanceCounts:
    """Count drafts over one text."""
    counts = AcceptanceCounts(len(drafts))
    left = np.arange(len(greedy))[::-1]
    counts.add([np.array(each) for each in drafts], np.array(greedy), np.array(following), left)
    return counts


def test_a_draft_counts_where_all_before_it_were_right():
    greedy = [1, 2, 3, 4]  # a greedy answer: what the target says is what follows
    # Row 1's first draft is wrong, so that its right second one is never reached.
    evaluation = counted([[1, 0, 3, 4], [2, 3, 4], [3, 4]], greedy, greedy).evaluation(0.0)
    assert evaluation.acceptance_rates == (3 / 4, 2 / 2, 1 / 1)


def test_what_follows_a_token_that_is_not_the_likeliest_does_not_count():
    greedy, following = [1, 2, 3], [1, 9, 3]  # the second token was drawn, against the target's best guess
    # Row 0 reaches its second draft, and row 1 does not: it would follow a token that greedy decoding never writes.
    assert counted([[1, 2, 3], [2, 3]], greedy, following).evaluation(0.0).acceptance_rates == (1.0, 1.0)
    assert counted([[1, 2, 3], [2, 0]], greedy, following).evaluation(0.0).acceptance_rates == (1.0, 1.0)
    assert counted([[1, 2, 3], [0, 3]], greedy, following).evaluation(0.0).acceptance_rates == (1.0, 0.0)


def test_rounds_begin_behind_the_tokens_of_the_last_one():
    text = [1, 2, 3, 4, 5]
    # A round at row 0 has two drafts that stand and yields three tokens; the one at row 3 has none, that at row 4 one.
    drafts = [[1, 2, 0, 0, 5], [2, 0, 4, 5]]
    evaluation = counted(drafts, text, text).evaluation(0.0)
    assert evaluation.acceptance_lengths[1] == pytest.approx(1 + 3 / 3)
    # With one draft a round: rows 0, 2, 3, 4.
    assert evaluation.acceptance_lengths[0] == pytest.approx(1 + 2 / 4)


def test_a_round_never_goes_on_into_the_next_text():
    runs, left = np.array([0, 3, 3, 1, 0]), np.array([2, 1, 0, 1, 0])
    assert walk(np.minimum(runs, left + 1), left) == (3, 0 + 2 + 1)


@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
def test_loss_and_gradient_are_torchs_cross_entropy_over_the_rows_that_count(dtype, apart):
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 70, generator=random).mul(3).to(dtype).requires_grad_()
    probabilities = torch.randn(5, 70, generator=random).mul(3).softmax(-1).to(dtype)
    counted = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    loss = soft_cross_entropy(logits, probabilities, counted)
    (gradient,) = torch.autograd.grad(0.7 * loss, logits)
    wide, rows = logits.detach().float().requires_grad_(), counted > 0
    expected = torch.nn.functional.cross_entropy(wide[rows], probabilities.float()[rows], reduction="sum")
    torch.testing.assert_close(loss, expected)
    (oracle,) = torch.autograd.grad(0.7 * expected, wide)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.float(), oracle, atol=apart * 0.1, rtol=apart)
    assert not gradient[counted == 0].any()


def test_the_learning_rate_rises_and_falls_to_nothing():
    schedule = Schedule(num_steps=100, warmup_steps=10, learning_rate=1.0)
    rates = [schedule.at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.001


def test_the_mean_loss_is_that_of_positions_not_of_batches():
    sums = LossSums(2, torch.device("cpu"))
    sums.add(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]))
    sums.add(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))
    assert sums.mean() == pytest.approx(6 / 3 + 0.8 * 2 / 1)
