"""Engines with drafters beside plain ones, and requests that ask for everything at once."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import scripted_drafter
import tiny_engine

from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.speculative.registry import DRAFTERS

VOCAB_SIZE = tiny_engine.VOCAB_SIZE


def build(folder: Path, method: str, num_drafts: int, *, more: dict[str, object] | None = None, **changes: object):
    """Build an engine with a drafter, whose budget has room for all drafts."""
    config = {"method": method, "num_speculative_tokens": num_drafts, **(more or {})}
    budget = {"max_num_batched_tokens": max(32, 4 * (1 + num_drafts))}
    return tiny_engine.build(folder, **(budget | changes), speculative_config=json.dumps(config))


def script(monkeypatch: pytest.MonkeyPatch, truth: list[tuple[int, ...]], *, error_period: int = 3) -> None:
    """Register the scripted drafters with what they are to know."""
    for method, place in scripted_drafter.REGISTERED.items():
        monkeypatch.setitem(DRAFTERS, method, place)
    monkeypatch.setattr(scripted_drafter, "TRUTH", truth)
    monkeypatch.setattr(scripted_drafter, "ERROR_PERIOD", error_period)


def truth_of(requests: list[Request], results: dict[str, tiny_engine.Result]) -> list[tuple[int, ...]]:
    """Return whole sequences, which go on behind the end of an output with anything."""
    return [(*each.prompt_token_ids, *results[each.request_id].token_ids) for each in requests]


def all_kinds() -> list[Request]:
    """Greedy, sampled, filtered and general requests, with log-probabilities, stops, shared prefixes and siblings."""
    draw = random.Random(0)
    common = [draw.randrange(VOCAB_SIZE) for _ in range(9)]
    kinds: list[dict[str, object]] = [
        {},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_k": 20, "logprobs": 2},
        {"temperature": 1.2, "top_p": 0.8},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
        {"bad_words_token_ids": ((3,), (5, 7)), "temperature": 1.0, "logprobs": 0},
        {"min_tokens": 5, "stop_token_ids": tuple(range(0, VOCAB_SIZE, 4))},
        {"stop_token_ids": tuple(range(0, VOCAB_SIZE, 7)), "temperature": 1.0},
        {"logprobs": 3, "prompt_logprobs": 1},
        {"temperature": 1.0, "min_p": 0.02},
        {"logit_bias": ((4, 2.0),)},
        {"temperature": 0.7},
    ]
    requests = []
    for number, params in enumerate(kinds):
        own = [draw.randrange(VOCAB_SIZE) for _ in range(draw.randrange(1, 9))]
        prompt = (common if number % 2 else []) + own * draw.randrange(1, 4)
        max_tokens = draw.choice((6, 13, 18, 23))
        one = tiny_engine.request(
            f"r{number}", prompt, max_tokens=max_tokens, seed=number, arrival=float(number), **params
        )
        requests.append(one)
    siblings = [
        replace(
            tiny_engine.request(f"n{index}", common * 2, max_tokens=9, seed=90 + index, arrival=50.0, temperature=1.0),
            group="siblings",
        )
        for index in range(3)
    ]
    return requests + siblings


def assert_equal(given: dict[str, tiny_engine.Result], expected: dict[str, tiny_engine.Result]) -> None:
    """Tokens and ends are equal, log-probabilities but for rounding."""
    for request_id, wanted in expected.items():
        got = given[request_id]
        assert got.token_ids == wanted.token_ids, request_id
        assert got.finish_reason == wanted.finish_reason, request_id
        for mine, theirs in ((got.logprobs, wanted.logprobs), (got.prompt_logprobs, wanted.prompt_logprobs)):
            assert [each.token_id for each in mine] == [each.token_id for each in theirs], request_id
            assert [each.logprob for each in mine] == pytest.approx([each.logprob for each in theirs], abs=1e-3)
            assert [len(each.top_ids) for each in mine] == [len(each.top_ids) for each in theirs]


def mean_accepted(core: EngineCore) -> float:
    """Drafts that stood in a request's round, in the mean."""
    stats = core.stats()
    return stats.spec_decode_accepted_tokens / stats.spec_decode_drafts
