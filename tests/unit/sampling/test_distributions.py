"""Sampled tokens have exactly the distribution that the parameters describe."""

from typing import Any

import numpy as np
import pytest
import torch
from sampling_cases import draws, request_of, row_numbers, state_of

from legato.device.protocol import Device
from legato.graphs.modes import SamplerVariant
from legato.kernels.log_exponential import log_exponential
from legato.sampling.noise import token_hashes
from legato.sampling.sampler import sample
from legato.sampling.seeds import mix_seed

VOCAB = 24
DRAWS = 60_000
LOGITS = np.random.default_rng(5).normal(scale=2.0, size=VOCAB)


def exact_probabilities(
    logits: np.ndarray, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> np.ndarray:
    """Return the distribution, by the definitions and in float64."""
    probabilities = np.exp(logits / temperature)
    probabilities /= probabilities.sum()
    best_first = sorted(range(len(logits)), key=lambda token: -probabilities[token])
    survivors = best_first[:top_k] if top_k else best_first
    mass = sum(probabilities[token] for token in survivors)
    chosen, covered = [], 0.0
    for token in survivors:
        if covered >= top_p:
            break
        chosen.append(token)
        covered += probabilities[token] / mass
    chosen = [token for token in chosen if probabilities[token] >= min_p * probabilities.max()]
    kept = np.zeros_like(probabilities)
    kept[chosen] = probabilities[chosen]
    return kept / kept.sum()


def chi_square_score(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Return how many standard deviations the statistic lies above its mean; tokens expected < 5 times are pooled."""
    expected = probabilities * counts.sum()
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    present = expected > 0
    assert counts[~present].sum() == 0, "a token of probability 0 was drawn"
    statistic = ((counts[present] - expected[present]) ** 2 / expected[present]).sum()
    freedom = present.sum() - 1
    return float((statistic - freedom) / np.sqrt(2 * max(freedom, 1)))


@pytest.mark.parametrize(
    ("variant", "params"),
    [
        (SamplerVariant.TEMPERATURE, {}),
        (SamplerVariant.TEMPERATURE, {"temperature": 0.5}),
        (SamplerVariant.TEMPERATURE, {"temperature": 3.0}),
        (SamplerVariant.FILTERED, {"top_k": 1}),
        (SamplerVariant.FILTERED, {"top_k": 5}),
        (SamplerVariant.FILTERED, {"top_p": 0.8, "temperature": 1.5}),
        (SamplerVariant.FILTERED, {"min_p": 0.05, "temperature": 2.0}),
        (SamplerVariant.FILTERED, {"top_k": 12, "top_p": 0.9, "min_p": 0.02, "temperature": 1.3}),
        (SamplerVariant.GENERAL, {"top_k": 12, "top_p": 0.9, "temperature": 0.8}),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, -7])
def test_draws_follow_the_exact_probabilities(
    variant: SamplerVariant, params: dict[str, Any], seed: int, device: Device
) -> None:
    logits = torch.tensor(LOGITS, dtype=torch.float32, device=device.torch_device)
    tokens = draws(logits, request_of(seed=seed, **params), variant, DRAWS)
    counts = np.bincount(tokens.numpy(), minlength=VOCAB)
    assert chi_square_score(counts, exact_probabilities(LOGITS, **params)) < 4.0


def test_a_wrong_temperature_would_be_noticed() -> None:
    """The yardstick itself: draws at temperature 1.05 do not pass for draws at 1."""
    tokens = draws(
        torch.tensor(LOGITS, dtype=torch.float32),
        request_of(temperature=1.05),
        SamplerVariant.TEMPERATURE,
        DRAWS,
    )
    counts = np.bincount(tokens.numpy(), minlength=VOCAB)
    assert chi_square_score(counts, exact_probabilities(LOGITS)) > 4.0


def test_different_seeds_at_one_position_follow_the_exact_probabilities() -> None:
    seeds = 4096
    state = state_of(*(request_of(seed=seed) for seed in range(seeds)), vocab_size=VOCAB)
    logits = torch.tensor(LOGITS, dtype=torch.float32).expand(seeds, -1)
    tokens = sample(logits, torch.arange(seeds), torch.full((seeds,), 9), state, SamplerVariant.TEMPERATURE)
    counts = np.bincount(tokens.numpy(), minlength=VOCAB)
    assert chi_square_score(counts, exact_probabilities(LOGITS)) < 4.0


def test_successive_draws_are_independent() -> None:
    tokens = draws(torch.zeros(16), request_of(seed=3), SamplerVariant.TEMPERATURE, 200_000).numpy()
    pairs = np.bincount(tokens[:-1] * 16 + tokens[1:], minlength=256)
    assert chi_square_score(pairs, np.full(256, 1 / 256)) < 4.0


def test_the_best_and_second_best_token_are_independent_of_each_other() -> None:
    noise = log_exponential(
        torch.full((200_000,), mix_seed(1)), torch.arange(200_000), token_hashes(8, torch.device("cpu"))
    )
    order = noise.argsort(dim=-1)[:, :2].numpy()
    pairs = np.bincount(order[:, 0] * 8 + order[:, 1], minlength=64).reshape(8, 8)
    off_diagonal = pairs[~np.eye(8, dtype=bool)]
    assert chi_square_score(off_diagonal, np.full(56, 1 / 56)) < 4.0


def test_noise_over_a_real_vocabulary_is_finite_and_exponential() -> None:
    """The least of V exponential variates is exponential with mean 1/V: the end that decides who wins."""
    vocab, positions = 49_152, 400
    noise = log_exponential(
        torch.full((positions,), mix_seed(2)), torch.arange(positions), token_hashes(vocab, torch.device("cpu"))
    )
    assert torch.isfinite(noise).all()
    least = np.sort(np.exp(noise.min(dim=-1).values.double().numpy()) * vocab)
    uniform = 1 - np.exp(-least)
    distance = np.abs(uniform - (np.arange(positions) + 0.5) / positions).max()  # Kolmogorov-Smirnov
    assert distance * np.sqrt(positions) < 1.95


def test_noise_is_finite_at_the_ends_of_its_range() -> None:
    """Every hash value, the extreme ones included, gives a finite variate."""
    hashes = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    seeds = torch.tensor([0, -1, 2**63 - 1, -(2**63)], dtype=torch.int64)
    noise = log_exponential(seeds, row_numbers(0, 1, 2**31, 2**40), hashes)
    assert torch.isfinite(noise).all()
