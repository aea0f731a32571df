"""The training form of a head computes what the serving one does, at every step that it is unrolled."""

import torch
from dense_context import DenseContext
from tiny_heads import HIDDEN, VOCAB, eagle3_config, eagle3_tensors, write_head

from legato.layers.embedding import Embedding
from legato.loading.draft_head_config import read_draft_head_config
from legato.loading.source import resolve_model
from legato.models.build_head import build_eagle3_head
from legato.models.eagle3 import Eagle3Head
from legato.speculative.eagle3 import ARCHITECTURES
from legato.training.head import TrainingHead

LENGTH, STEPS = 9, 3


def heads(tmp_path) -> tuple[Eagle3Head, TrainingHead]:
    """The same head twice, for serving and for training, its inputs scaled channel by channel."""
    tensors = eagle3_tensors()
    source = resolve_model(str(write_head(tmp_path, eagle3_config(), tensors)), "auto")
    config = read_draft_head_config(source.path, ARCHITECTURES)
    serving, _ = build_eagle3_head(source, config, 0, torch.float32, torch.device("cpu"))
    scale = torch.rand(3 * HIDDEN, generator=torch.Generator().manual_seed(2)) + 0.5
    weights = {name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")}
    return serving, TrainingHead(config, {**weights, "fc.weight": weights["fc.weight"] * scale}, scale)


def table() -> Embedding:
    embedding = Embedding(VOCAB, HIDDEN, dtype=torch.float32, device=torch.device("cpu"))
    embedding.weight.normal_(generator=torch.Generator().manual_seed(4))
    return embedding


def texts(num_texts: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [num_texts, LENGTH], and inner states of a target at them."""
    random = torch.Generator().manual_seed(3)
    auxiliary = torch.randn(num_texts, LENGTH, 3 * HIDDEN, generator=random)
    return torch.randint(VOCAB, (num_texts, LENGTH), generator=random), auxiliary


@torch.inference_mode()
def served(head: Eagle3Head, token_ids: torch.Tensor, auxiliary: torch.Tensor, last: int) -> list[torch.Tensor]:
    """Draft as an engine does once ``last`` + 1 positions are known: extend over these, then one token at a time."""
    context, embedding, places = DenseContext(), table(), torch.arange(LENGTH + STEPS)
    known = last + 1
    states = head(embedding, token_ids[1 : known + 1], head.combine(auxiliary[:known]), places[:known], context)
    states = [states[-1:].clone()]
    for step in range(1, STEPS):
        at = known + step
        states.append(head(embedding, token_ids[at : at + 1], states[-1].clone(), places[at - 1 : at], context))
    return states


def test_logits_of_every_unrolled_step_are_those_of_the_serving_head(tmp_path):
    serving, training = heads(tmp_path)
    token_ids, auxiliary = texts()
    unrolled = training.unroll(table()(token_ids), auxiliary, STEPS)
    for text in range(2):
        for last in range(LENGTH - STEPS):
            for step, expected in enumerate(served(serving, token_ids[text], auxiliary[text], last)):
                given = unrolled[step][text, last]
                torch.testing.assert_close(given, expected[0], atol=1e-4, rtol=1e-4)
                logits = serving.compute_logits(expected.clone())
                torch.testing.assert_close(training.logits(given[None]), logits, atol=1e-3, rtol=1e-4)


def test_what_is_published_is_what_was_loaded(tmp_path):
    _, training = heads(tmp_path)
    tensors = eagle3_tensors()
    published = training.published()
    assert set(published) == set(tensors) - {"d2t", "t2d"}
    for name, weight in published.items():
        torch.testing.assert_close(weight, tensors[name], atol=1e-6, rtol=1e-6)


def test_every_parameter_has_a_gradient(tmp_path):
    _, training = heads(tmp_path)
    token_ids, auxiliary = texts()
    states = training.unroll(table()(token_ids), auxiliary, STEPS)
    training.logits(states[-1].flatten(0, 1)).logsumexp(-1).sum().backward()
    for name, weight in training.weights.items():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_a_text_never_sees_what_comes_after_it(tmp_path):
    """What is padded behind a text changes no state that is learned."""
    _, training = heads(tmp_path)
    token_ids, auxiliary = texts()
    embedded = table()(token_ids)
    changed, inner = embedded.clone(), auxiliary.clone()
    changed[:, 7:], inner[:, 7:] = 100.0, -100.0
    for step, (given, other) in enumerate(
        zip(training.unroll(embedded, auxiliary, STEPS), training.unroll(changed, inner, STEPS), strict=True)
    ):
        learned = 7 - 1 - step  # the token read at position t and step i is that at t + 1 + i
        torch.testing.assert_close(given[:, :learned], other[:, :learned], atol=0, rtol=0)
        assert not torch.equal(given[:, learned], other[:, learned])
