"""What a teacher says of a text is what the model computes over that text alone."""

import pytest
import torch
from dense_context import DenseContext

from legato.engine.bootstrap import load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.models.causal_lm import AuxiliaryStates, CausalLM
from legato.training.target import Target

LAYERS = (2, 3, 4)
TEXTS = torch.tensor([[5, 9, 200, 31, 7, 7, 0, 0], [11, 250, 3, 0, 0, 0, 0, 0]])
LENGTHS = (6, 3)


@pytest.fixture(scope="module")
def teacher(engine) -> Target:
    resolved = resolve(engine)
    return Target(resolved, load_model(resolved, BuildProgress(None)), LAYERS, num_blocks=2, max_num_texts=2)


@torch.no_grad()
def alone(model: CausalLM, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Inner and final states of one text, without a cache."""
    kept = AuxiliaryStates(layers=LAYERS, out=torch.empty(len(token_ids), len(LAYERS) * model.config.hidden_size))
    return kept.out, model(token_ids, torch.arange(len(token_ids)), DenseContext(), kept)


def test_states_are_those_of_each_text_alone(teacher):
    states = teacher.states(TEXTS)
    final = states.final.view(2, 8, -1)
    for index, length in enumerate(LENGTHS):
        auxiliary, expected = alone(teacher.model, TEXTS[index, :length])
        torch.testing.assert_close(states.auxiliary[index, :length], auxiliary, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(final[index, :length], expected, atol=1e-4, rtol=1e-4)


def test_a_lesson_has_the_likeliest_token_of_all_and_probabilities_of_those_that_can_be_drafted(teacher):
    final = teacher.states(TEXTS).final
    draft_ids = torch.tensor([0, 7, 40, 299])
    lesson = teacher.lesson(final, draft_ids)
    logits = teacher.model.compute_logits(final)
    assert lesson.greedy.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(lesson.probabilities, logits[:, draft_ids].softmax(-1))


def test_autograd_may_keep_what_a_teacher_gives(teacher):
    states = teacher.states(TEXTS)
    weight = torch.ones(states.final.shape[1], requires_grad=True)
    (states.final * weight).sum().backward()
    torch.testing.assert_close(weight.grad, states.final.sum(0))
