"""Each change of logits equals a plain Python implementation of its definition, row by row."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import request_of, row_numbers
from transformers.generation.logits_process import NoBadWordsLogitsProcessor, RepetitionPenaltyLogitsProcessor

from legato.flow.request import Request
from legato.graphs.modes import SamplerVariant
from legato.sampling.processors import process
from legato.sampling.sampler import sample
from legato.sampling.state import SamplingState

VOCAB = 12
NEVER = float("-inf")

token = st.integers(0, VOCAB - 1)
tokens = st.lists(token, max_size=6).map(tuple)


def naive(logits: Sequence[float], request: Request, output: Sequence[int]) -> list[float]:
    """Return the logits that the parameters make, by the definitions."""
    params, counts = request.params, Counter(output)
    result = []
    for token_id, logit in enumerate(logits):
        if token_id in counts or token_id in request.prompt_token_ids:
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        logit -= params.presence_penalty if token_id in counts else 0.0
        logit -= params.frequency_penalty * counts[token_id]
        logit += sum(value for biased, value in params.logit_bias if biased == token_id)
        allowed = params.allowed_token_ids is None or token_id in params.allowed_token_ids
        too_early = token_id in request.stop_token_ids and len(output) < params.min_tokens
        context = (*request.prompt_token_ids, *output)
        completes = any(
            word[-1] == token_id and (len(word) == 1 or context[-len(word) + 1 :] == word[:-1])
            for word in params.bad_words_token_ids
        )
        result.append(logit if allowed and not too_early and not completes else NEVER)
    return result


parameters = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.floats(0.5, 2.0),
        "presence_penalty": st.floats(-2.0, 2.0),
        "frequency_penalty": st.floats(-2.0, 2.0),
        "logit_bias": st.lists(st.tuples(token, st.floats(-10, 10)), max_size=3).map(tuple),
        "allowed_token_ids": st.lists(token, min_size=1, max_size=8).map(tuple),
        "bad_words_token_ids": st.lists(
            st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4
        ).map(tuple),
        "min_tokens": st.integers(0, 8),
    },
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Request, tuple[int, ...], tuple[int, ...]]:
    """Return a request, its output before admission (after a preemption) and its output since."""
    prompt = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple))
    stops = draw(st.frozensets(token, max_size=2))
    request = request_of(prompt=prompt, stop_token_ids=stops, temperature=0.0, **draw(parameters))
    small = st.lists(st.integers(0, 3), max_size=5).map(tuple)
    return request, draw(small), draw(small)


@settings(max_examples=250, deadline=None)
@given(st.lists(cases(), min_size=1, max_size=3), st.integers(0, 1000))
def test_a_batch_of_requests_gets_the_logits_of_the_definitions(
    batch: list[tuple[Request, tuple[int, ...], tuple[int, ...]]], seed: int
) -> None:
    state = SamplingState(4, VOCAB, "cpu")
    for row, (request, before, _) in enumerate(batch):
        state.admit(row, request, before)
    for step in range(max(len(since) for _, _, since in batch)):  # rows that have no token take part as padding
        at_step = [(row, since[step]) for row, (_, _, since) in enumerate(batch) if step < len(since)]
        padding = [(state.null_row, 0)] * (len(batch) - len(at_step))
        rows, sampled = zip(*at_step, *padding, strict=True)
        state.observe(row_numbers(*rows), row_numbers(*sampled))
    logits = torch.randn(len(batch), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    rows = torch.arange(len(batch))
    positions = row_numbers(*(len(r.prompt_token_ids) + len(a) + len(b) for r, a, b in batch))
    got = process(logits, rows, positions, state, state.gather(rows))
    expected = [
        naive(row.tolist(), request, (*before, *since))
        for row, (request, before, since) in zip(logits, batch, strict=True)
    ]
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(token, min_size=1, max_size=9).map(tuple), st.floats(0.3, 3.0), st.integers(0, 1000))
def test_the_repetition_penalty_is_that_of_transformers(prompt: tuple[int, ...], penalty: float, seed: int) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed))
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([prompt]), logits.clone())
    got = processed(logits, request_of(prompt=prompt, repetition_penalty=penalty))
    torch.testing.assert_close(got, expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=9).map(tuple),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_bad_words_are_those_of_transformers(prompt: tuple[int, ...], words: list[list[int]]) -> None:
    expected = NoBadWordsLogitsProcessor(words, eos_token_id=VOCAB - 1)(torch.tensor([prompt]), torch.zeros(1, VOCAB))
    got = processed(torch.zeros(1, VOCAB), request_of(prompt=prompt, bad_words_token_ids=tuple(map(tuple, words))))
    torch.testing.assert_close(got, expected)


def processed(logits: torch.Tensor, request: Request) -> torch.Tensor:
    """Return the logits [1, vocab] of a request without output."""
    state = SamplingState(1, VOCAB, "cpu")
    state.admit(0, request)
    rows = row_numbers(0)
    return process(logits, rows, row_numbers(len(request.prompt_token_ids)), state, state.gather(rows))


@pytest.mark.parametrize(
    "params",
    [{"repetition_penalty": 1.3}, {"logit_bias": ((2, 5.0),)}, {"min_tokens": 3}, {"bad_words_token_ids": ((1, 2),)}],
)
def test_a_request_with_changes_leaves_its_neighbour_alone(params: dict[str, Any]) -> None:
    logits = torch.randn(40, VOCAB, generator=torch.Generator().manual_seed(0))
    plain = request_of(seed=5)
    alone, shared = SamplingState(2, VOCAB, "cpu"), SamplingState(2, VOCAB, "cpu")
    alone.admit(1, plain)
    shared.admit(1, plain)
    shared.admit(0, request_of(stop_token_ids=frozenset({1}), **params))
    rows, positions = torch.ones(40, dtype=torch.int64), torch.arange(1, 41)
    expected, got = (sample(logits, rows, positions, state, SamplerVariant.GENERAL) for state in (alone, shared))
    assert got.tolist() == expected.tolist()


def test_greedy_generation_alternates_under_a_strong_presence_penalty() -> None:
    """Counts follow the sampled tokens on the device: each step sees the one before."""
    state = SamplingState(1, VOCAB, "cpu")
    state.admit(0, request_of(prompt=(11,), temperature=0.0, presence_penalty=2.0))
    logits = torch.zeros(1, VOCAB)
    logits[0, [3, 4, 5]] = torch.tensor([3.0, 2.5, 2.0])
    generated = []
    for position in range(1, 4):
        sampled = sample(logits, row_numbers(0), row_numbers(position), state, SamplerVariant.GENERAL)
        state.observe(row_numbers(0), sampled)
        generated.append(int(sampled))
    assert generated == [3, 4, 5]
