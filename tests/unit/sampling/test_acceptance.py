"""Which drafts stand: exact acceptance keeps the target's distribution, synthetic acceptance keeps its rates."""

import pytest
import torch
from sampling_cases import request_of, state_of

from legato.config.speculative import rates_of_length, rates_of_positions
from legato.device.protocol import Device
from legato.graphs.modes import SamplerVariant
from legato.kernels.acceptance import accepted_run, take_drafts, tosses
from legato.sampling.acceptance import SyntheticAcceptance
from legato.sampling.sampler import sample
from legato.sampling.seeds import mix_seed
from legato.sampling.state import SamplingState

NUM_DRAWS = 100_000
CPU = torch.device("cpu")


def test_a_run_ends_at_the_first_draft_that_falls() -> None:
    stands = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=torch.bool)
    assert accepted_run(stands, torch.full((4,), 3)).tolist() == [3, 1, 0, 2]


def test_drafts_beyond_those_that_may_stand_do_not_count() -> None:
    assert accepted_run(torch.ones(2, 2, dtype=torch.bool), torch.tensor([2, 1])).tolist() == [2, 1]
    assert accepted_run(torch.ones(2, 0, dtype=torch.bool), torch.tensor([0, 0])).tolist() == [0, 0]


def _draws(logits: torch.Tensor, state: SamplingState, variant: SamplerVariant, width: int) -> torch.Tensor:
    """Sample ``width`` places of one request NUM_DRAWS times, at positions that are all different."""
    places = torch.arange(NUM_DRAWS * width, device=logits.device)
    rows = torch.zeros(len(places), dtype=torch.int64, device=logits.device)
    given = logits.repeat(NUM_DRAWS, 1)  # [NUM_DRAWS * width, vocab]
    return sample(given, rows, places, state, variant).view(NUM_DRAWS, width)


def _chi_squared(counts: torch.Tensor, probabilities: torch.Tensor) -> tuple[float, float]:
    """Return the statistic over tokens that can come, and a bound that chance passes once in a million times."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = probabilities[possible] * counts.sum()
    statistic = ((counts[possible] - expected) ** 2 / expected).sum().item()
    freedom = int(possible.sum()) - 1
    # Wilson and Hilferty's cube root of a chi-squared variate is nearly normal.
    spread = 2 / (9 * freedom)
    return statistic, freedom * (1 - spread + 4.9 * spread**0.5) ** 3


@pytest.mark.parametrize(
    ("params", "variant"),
    [
        ({"temperature": 1.0}, SamplerVariant.TEMPERATURE),
        ({"temperature": 0.6}, SamplerVariant.TEMPERATURE),
        ({"temperature": 1.3, "top_k": 5}, SamplerVariant.FILTERED),
        ({"temperature": 1.0, "top_p": 0.7}, SamplerVariant.FILTERED),
        ({"temperature": 0.9, "top_k": 7, "top_p": 0.9}, SamplerVariant.FILTERED),
    ],
)
@pytest.mark.parametrize("draft_quality", ["best", "random", "worst"])
def test_tokens_behind_any_drafts_have_the_targets_distribution(
    params: dict[str, float], variant: SamplerVariant, draft_quality: str, device: Device
) -> None:
    """The first token, and the second where the first draft stood: 100,000 draws each from 12 tokens."""
    vocab_size, width = 12, 2
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(width, vocab_size, generator=generator) * 1.5
    state = state_of(request_of(**params, seed=7), vocab_size=vocab_size, device=device.torch_device)
    sampled = _draws(logits.to(device.torch_device), state, variant, width)
    best = logits[0].argmax()
    drafts = {
        "best": torch.full((NUM_DRAWS, 1), int(best)),
        "worst": torch.full((NUM_DRAWS, 1), int(logits[0].argmin())),
        "random": torch.randint(0, vocab_size, (NUM_DRAWS, 1), generator=generator),
    }[draft_quality]
    most = torch.ones(NUM_DRAWS, dtype=torch.int64)
    num_accepted = accepted_run(sampled[:, :-1] == drafts.to(sampled.device), most.to(sampled.device)).cpu()
    sampled = sampled.cpu()
    probabilities = _target(logits, **params)
    for place in range(width):
        judged = sampled[num_accepted >= place, place]
        if len(judged) < 1000:
            continue  # the worst draft almost never stands
        statistic, bound = _chi_squared(judged.bincount(minlength=vocab_size).double(), probabilities[place])
        assert statistic < bound, (place, statistic, bound)
    # A draft stands with the target's probability of it.
    wanted = probabilities[0][drafts.squeeze(1)].mean().item()
    assert num_accepted.double().mean().item() == pytest.approx(wanted, abs=5 * (0.25 / NUM_DRAWS) ** 0.5)


def _target(logits: torch.Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """Return the filtered distribution written out anew.  # [width, vocab] float64"""
    rows = []
    for row in logits.double():
        order = row.argsort(descending=True).tolist()
        kept = order[: top_k or len(order)]
        weights = (row[kept] / temperature).softmax(-1)
        total, chosen = 0.0, 0
        while chosen < len(kept) and total < top_p:
            total += weights[chosen].item()
            chosen += 1
        probabilities = torch.zeros_like(row)
        probabilities[kept[:chosen]] = weights[:chosen] / weights[:chosen].sum()
        rows.append(probabilities)
    return torch.stack(rows)


@pytest.mark.parametrize(("length", "num_drafts"), [(1.0, 3), (1.7, 1), (2.8, 3), (4.0, 3), (3.3, 7), (6.0, 5)])
def test_synthetic_acceptance_gives_rounds_of_the_stated_length_in_the_mean(
    length: float, num_drafts: int, device: Device
) -> None:
    stood = _tosses(rates_of_length(length, num_drafts), device=device.torch_device)
    num_accepted = accepted_run(stood, torch.full((NUM_DRAWS,), num_drafts, device=stood.device))
    assert 1 + num_accepted.double().mean().item() == pytest.approx(length, abs=0.03)


def test_synthetic_acceptance_keeps_the_rate_of_each_position() -> None:
    shares = (0.9, 0.55, 0.5, 0.0)
    stood = _tosses(rates_of_positions(shares)).to(torch.int64).cumprod(dim=1)
    assert stood.double().mean(dim=0).tolist() == pytest.approx(shares, abs=0.006)


def test_synthetic_acceptance_is_the_same_for_the_same_seed_and_positions() -> None:
    rates = rates_of_length(2.5, 4)
    assert torch.equal(_tosses(rates), _tosses(rates))
    assert not torch.equal(_tosses(rates), _tosses(rates, seed=1))


def test_certain_and_impossible_rates_are_kept_to_the_last_draw() -> None:
    assert _tosses((1.0, 1.0)).all()
    assert not _tosses((0.0, 0.0)).any()


def test_drafts_that_stand_by_decree_are_given_out() -> None:
    sampled, drafts = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[7, 8], [9, 10]])
    assert take_drafts(sampled, drafts, torch.tensor([1, 2])).tolist() == [[7, 2, 3], [9, 10, 6]]


def _tosses(rates: tuple[float, ...], seed: int = 0, device: torch.device = CPU) -> torch.Tensor:
    """Toss for 100,000 rounds: a hundred requests, each round one position after the other's end."""
    num_drafts = len(rates)
    seeds = torch.tensor([mix_seed(seed * 1000 + each) for each in range(100)]).repeat(NUM_DRAWS // 100)
    starts = torch.arange(NUM_DRAWS) // 100 * (num_drafts + 1)
    positions = starts.unsqueeze(1) + torch.arange(num_drafts)
    return tosses(seeds.to(device), positions.to(device), SyntheticAcceptance(rates, device).bounds)


def test_coins_are_those_of_a_requests_own_seed() -> None:
    state = state_of(request_of(seed=7), request_of(seed=9), vocab_size=12)
    assert state.seeds[:2].tolist() == [mix_seed(7), mix_seed(9)]
    assert state.seeds[state.null_row] == 0
