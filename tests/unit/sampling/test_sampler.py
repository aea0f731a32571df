"""Rows are independent: of each other, of their place, of padding, and of the variant that happens to serve them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import request_of, row_numbers, state_of
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from legato.graphs.modes import SamplerVariant
from legato.sampling import sampler
from legato.sampling.sampler import kept, sample

VOCAB = 97
VARIANTS = (SamplerVariant.TEMPERATURE, SamplerVariant.FILTERED, SamplerVariant.GENERAL)


def random_logits(num_reqs: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randn(num_reqs, vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("variant", list(SamplerVariant))
def test_greedy_rows_take_the_best_token_in_every_variant(variant: SamplerVariant) -> None:
    logits = random_logits(4)
    state = state_of(*(request_of(temperature=0.0, seed=row) for row in range(4)), vocab_size=VOCAB)
    tokens = sample(logits, torch.arange(4), torch.arange(4), state, variant)
    assert tokens.tolist() == logits.argmax(dim=-1).tolist()
    assert tokens.dtype == torch.int64


@pytest.mark.parametrize("variant", list(SamplerVariant))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_equal_best_logits_give_the_first_token_id(variant: SamplerVariant, dtype: torch.dtype) -> None:
    logits = torch.zeros(2, VOCAB, dtype=dtype)
    logits[:, [40, 60]] = 1.0
    state = state_of(request_of(temperature=0.0), request_of(temperature=0.0), vocab_size=VOCAB)
    assert sample(logits, torch.arange(2), torch.arange(2), state, variant).tolist() == [40, 40]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_seed_gives_the_same_tokens_alone_in_a_batch_and_on_another_row(variant: SamplerVariant) -> None:
    logits = random_logits(1)
    alone = state_of(request_of(seed=11), vocab_size=VOCAB)
    others = [request_of(seed=seed, temperature=0.7) for seed in range(5)]
    crowd = state_of(*others, request_of(seed=11), vocab_size=VOCAB, max_num_seqs=8)
    for position in range(1, 40):
        expected = sample(logits, row_numbers(0), row_numbers(position), alone, variant)
        batch = torch.cat([random_logits(2, seed=position), logits, random_logits(1, seed=position)])
        tokens = sample(batch, row_numbers(3, 0, 5, 1), row_numbers(7, 9, position, 2), crowd, variant)
        assert tokens[2] == expected[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_drawn_a_few_at_a_time_get_the_tokens_of_all_at_once(
    variant: SamplerVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [request_of(seed=seed, temperature=0.9, top_p=0.8, presence_penalty=0.5) for seed in range(7)]
    state, logits = state_of(*requests, vocab_size=VOCAB), random_logits(7)
    rows = row_numbers(6, 0, 5, 1, 4, 2, 3)
    expected = sample(logits, rows, torch.arange(7), state, variant)
    for rows_at_once in (3, 1, 0):
        monkeypatch.setattr(sampler, "_ELEMENTS_AT_ONCE", rows_at_once * VOCAB)
        assert sample(logits, rows, torch.arange(7), state, variant).tolist() == expected.tolist()


def test_an_unfiltered_row_draws_the_same_token_in_every_variant() -> None:
    count = 300
    logits = random_logits(1).expand(count, -1)
    state = state_of(request_of(seed=4, temperature=1.2), vocab_size=VOCAB)
    rows, positions = torch.zeros(count, dtype=torch.int64), torch.arange(count)
    first, *rest = (sample(logits, rows, positions, state, variant).tolist() for variant in VARIANTS)
    assert all(tokens == first for tokens in rest)
    assert len(set(first)) > 5


def test_a_seed_gives_another_text_than_another_seed() -> None:
    count = 100
    state = state_of(request_of(seed=1), request_of(seed=2), vocab_size=VOCAB)
    logits, positions = torch.zeros(count, VOCAB), torch.arange(count)
    first, second = (
        sample(logits, torch.full((count,), row), positions, state, SamplerVariant.TEMPERATURE) for row in (0, 1)
    )
    assert (first == second).float().mean() < 0.1


@pytest.mark.parametrize("variant", list(SamplerVariant))
def test_a_padded_row_never_changes_a_real_one(variant: SamplerVariant) -> None:
    requests = [
        request_of(seed=1, top_k=9),
        request_of(seed=2, repetition_penalty=1.5, bad_words_token_ids=((1,), (2, 3))),
        request_of(seed=3, temperature=0.0, logit_bias=((5, 4.0),)),
    ]
    bare, padded = (state_of(*requests, vocab_size=VOCAB, max_num_seqs=3) for _ in range(2))
    null = padded.null_row
    for step in range(1, 12):
        logits = random_logits(3, seed=step)
        positions = torch.full((3,), step)
        expected = sample(logits, torch.arange(3), positions, bare, variant)
        poison = torch.full((2, VOCAB), float("nan"))
        rows = row_numbers(0, 1, 2, null, null)
        tokens = sample(torch.cat([logits, poison]), rows, torch.cat([positions, row_numbers(0, 0)]), padded, variant)
        assert tokens[:3].tolist() == expected.tolist()
        assert ((tokens >= 0) & (tokens < VOCAB)).all()
        bare.observe(torch.arange(3), expected)
        padded.observe(rows, tokens)


def test_the_caller_keeps_its_logits() -> None:
    state = state_of(request_of(seed=1, repetition_penalty=2.0, top_k=3), vocab_size=VOCAB)
    logits = random_logits(1)
    before = logits.clone()
    for variant in SamplerVariant:
        sample(logits, row_numbers(0), row_numbers(1), state, variant)
    assert torch.equal(logits, before)


def test_a_tiny_temperature_is_greedy_and_not_undefined() -> None:
    logits = random_logits(50)
    state = state_of(request_of(temperature=1e-30, top_p=0.5, min_p=0.1), vocab_size=VOCAB)
    tokens = sample(logits, torch.zeros(50, dtype=torch.int64), torch.arange(50), state, SamplerVariant.FILTERED)
    assert tokens.tolist() == logits.argmax(dim=-1).tolist()


def test_a_row_taken_over_by_another_request_keeps_nothing_of_the_first() -> None:
    first = request_of(
        allowed_token_ids=(7,),
        presence_penalty=2.0,
        min_tokens=50,
        stop_token_ids=frozenset({3}),
        bad_words_token_ids=((4,), (5, 6)),
    )
    reused = state_of(first, vocab_size=VOCAB)
    reused.observe(row_numbers(0), row_numbers(7))
    reused.release(0)
    second = request_of(seed=8, frequency_penalty=0.5)
    reused.admit(0, second)
    fresh = state_of(second, vocab_size=VOCAB)
    logits = random_logits(200)
    rows, positions = torch.zeros(200, dtype=torch.int64), torch.arange(1, 201)
    got, expected = (sample(logits, rows, positions, state, SamplerVariant.GENERAL) for state in (reused, fresh))
    assert got.tolist() == expected.tolist()


filters = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.2, 3.0),
        "top_k": st.integers(0, 40),
        "top_p": st.floats(0.05, 1.0),
        "min_p": st.floats(0.0, 0.9),
    }
)


@settings(max_examples=150, deadline=None)
@given(filters, st.integers(0, 10_000))
def test_the_filters_keep_what_the_warpers_of_transformers_keep(params: dict[str, float], seed: int) -> None:
    logits = random_logits(1, seed=seed, vocab=60)
    warped = TemperatureLogitsWarper(params["temperature"])(torch.zeros(1, 1), logits.clone())
    if params["top_k"]:
        warped = TopKLogitsWarper(int(params["top_k"]))(torch.zeros(1, 1), warped)
    if params["top_p"] < 1.0:
        warped = TopPLogitsWarper(params["top_p"])(torch.zeros(1, 1), warped)
    expected = torch.isfinite(MinPLogitsWarper(params["min_p"])(torch.zeros(1, 1), warped))[0]
    state = state_of(request_of(**params), vocab_size=60)
    ordered, token_ids = logits.sort(dim=-1, descending=True, stable=True)
    mine = torch.zeros(60, dtype=torch.bool)
    mine[token_ids[0]] = kept(ordered, state.gather(row_numbers(0)))[0]
    # The two sum probabilities in opposite orders: only a token exactly at the edge of top_p may differ.
    differing = np.flatnonzero((mine != expected).numpy())
    assert all(at_the_edge(logits[0], int(token), params) for token in differing), differing


def at_the_edge(logits: torch.Tensor, token: int, params: dict[str, float]) -> bool:
    """Return whether the probability before ``token`` equals top_p, or its share min_p, to float32's accuracy."""
    scaled = logits.double() / params["temperature"]
    order = scaled.argsort(descending=True)
    if params["top_k"]:
        order = order[: int(params["top_k"])]
    probabilities = scaled[order].softmax(dim=-1)
    rank = order.tolist().index(token)
    before = float(probabilities[:rank].sum())
    share = float(probabilities[rank] / probabilities[0])
    return abs(before - params["top_p"]) < 1e-5 or abs(share - params["min_p"]) < 1e-5
