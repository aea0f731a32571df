"""Every registered drafter leaves the output as it is, and drafts through the paged cache what it would without one."""

from pathlib import Path

import pytest
import torch
from drafter_cases import CASES, Watched, from_scratch
from tiny_engine import build, request, tokens

from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.models.causal_lm import CausalLM
from legato.runner.round_program import RoundProgram
from legato.speculative.registry import DRAFTERS

POLICIES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
LEARNED = [name for name in CASES if name != "ngram"]
CACHE = {"kv_cache_memory_bytes": 4_000_000}


def requests(**params: object) -> list[Request]:
    """Prompts that take several chunks, one that has a single token, and outputs of different lengths."""
    random = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 96, (length,), generator=random).tolist() for length in (33, 1, 9, 20, 5)]
    return [
        request(f"request {index}", prompt, max_tokens=5 + 3 * index, seed=index, **params)
        for index, prompt in enumerate(prompts)
    ]


def test_every_registered_drafter_is_here() -> None:
    assert {case.method for case in CASES.values()} == set(DRAFTERS)


@pytest.mark.parametrize("name", CASES)
def test_output_is_that_of_plain_decoding_under_every_policy(name: str, tmp_path: Path) -> None:
    target = CASES[name].write_target(tmp_path)
    typed = CASES[name].typed(tmp_path, 3)
    sampled = {"temperature": 0.8, "top_k": 20}
    plain = build(target, graph_policy="none", **CACHE)
    expected = tokens(plain, requests()), tokens(plain, requests(**sampled))
    for policy in POLICIES:
        drafted = build(target, graph_policy=policy, speculative_config=typed, graph_sizes=(8, 32), **CACHE)
        assert drafted.graph_report()["dropped"] == [], policy
        assert (tokens(drafted, requests()), tokens(drafted, requests(**sampled))) == expected, policy


@pytest.mark.parametrize("num_drafts", [1, 8])
@pytest.mark.parametrize("name", CASES)
def test_more_drafts_than_a_head_was_trained_for_change_nothing(name: str, num_drafts: int, tmp_path: Path) -> None:
    target = CASES[name].write_target(tmp_path)
    settings = {"graph_policy": "none", "max_num_batched_tokens": 40, **CACHE}
    drafted = build(target, speculative_config=CASES[name].typed(tmp_path, num_drafts), **settings)
    assert tokens(drafted, requests()) == tokens(build(target, **settings), requests())


def watched(core: EngineCore) -> tuple[Watched, CausalLM]:
    """Put a record around the drafter of a core."""
    program = core._runner.program
    assert isinstance(program, RoundProgram) and isinstance(program.model, CausalLM)
    record = Watched(program.drafter)
    program.drafter = record
    return record, program.model


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("name", LEARNED)
def test_drafts_through_the_cache_are_those_computed_from_scratch(name: str, num_drafts: int, tmp_path: Path) -> None:
    """Over rounds of which tails are rejected at random, in batches that mix chunks of prompts with drafts."""
    case = CASES[name]
    length = 1 + 0.6 * num_drafts
    typed = case.typed(tmp_path, num_drafts, rejection_sample_method="synthetic", synthetic_acceptance_length=length)
    core = build(case.write_target(tmp_path), graph_policy="none", speculative_config=typed, **CACHE)
    record, target = watched(core)
    given = requests()
    outputs = tokens(core, given)
    whole = {one.prompt_token_ids: [*one.prompt_token_ids, *outputs[one.request_id]] for one in given}
    compared = 0
    for prompt, position, token, drafts in record.proposed:
        sequence = whole[prompt]
        # What is past a sequence's end has no place in the cache.
        num_wanted = len(sequence) - position - 1
        if num_wanted > 0 and sequence[position] == token:
            expected = from_scratch(record.drafter, target, sequence[: position + 1])
            assert drafts[:num_wanted] == expected[:num_wanted]
            compared += 1
    assert compared >= 15
    assert 0 < core.stats().spec_decode_accepted_tokens < core.stats().spec_decode_draft_tokens
