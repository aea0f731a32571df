"""Training begins near the target's output rows, with logits and inputs of about one size."""

import pytest
import torch
from tiny_heads import HIDDEN, TARGET, eagle3_config

from legato.loading.draft_head_config import parse_draft_head_config
from legato.loading.dummy import fill_with_random
from legato.loading.hf_config import parse_hf_config
from legato.models.llama import LlamaForCausalLM
from legato.speculative.eagle3 import ARCHITECTURES
from legato.training.head import TrainingHead
from legato.training.initial_weights import initial_weights, input_scale

DRAFT_IDS = torch.arange(0, 80, 2)


@pytest.fixture
def target() -> LlamaForCausalLM:
    model = LlamaForCausalLM(parse_hf_config(TARGET, "config.json"), torch.float32, torch.device("cpu"))
    fill_with_random(model.named_parameters(), seed=1)
    return model


def test_logits_begin_with_a_deviation_of_about_one(target):
    target.lm_head.weight.mul_(40.0)  # a target that is certain of what it says
    config = parse_draft_head_config(eagle3_config(), "config.json", ARCHITECTURES)
    head = TrainingHead(config, initial_weights(config, target, DRAFT_IDS, seed=0), torch.ones(3 * HIDDEN))
    logits = head.logits(torch.randn(500, HIDDEN, generator=torch.Generator().manual_seed(0)) * 7)
    assert 0.8 < float(logits.detach().std()) < 1.2
    torch.testing.assert_close(head.weights["lm_head.weight"].detach(), target.lm_head.weight.data[DRAFT_IDS])


def test_the_same_seed_draws_the_same_weights(target):
    config = parse_draft_head_config(eagle3_config(), "config.json", ARCHITECTURES)
    one, same, other = (initial_weights(config, target, DRAFT_IDS, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["fc.weight"], other["fc.weight"])


def test_channels_of_any_size_are_scaled_to_about_one():
    states = torch.randn(200, 4) * torch.tensor([0.01, 1.0, 900.0, 0.0])
    scaled = states / input_scale(states)
    torch.testing.assert_close(scaled.square().mean(0), torch.tensor([1.0, 1.0, 1.0, 0.0]))
