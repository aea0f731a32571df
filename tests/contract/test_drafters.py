"""Every registered drafter leaves the output as it is, and drafts through the paged cache what it would without one."""

import json
from pathlib import Path

import pytest
import torch
from drafter_cases import CASES, DrafterCase, Watched
from drafts_at_random import at_random
from tiny_engine import build, request, tokens, write_config
from tiny_heads import eagle3_config

from legato.attention.registry import BACKENDS
from legato.engine.core import EngineCore
from legato.errors import ConfigError
from legato.flow.request import Request
from legato.models.causal_lm import CausalLM
from legato.runner.round_program import RoundProgram
from legato.speculative.registry import DRAFTERS

POLICIES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
WITH_LAYERS = [name for name, case in CASES.items() if case.from_scratch is not None]
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


@pytest.mark.parametrize("name", CASES)
def test_a_number_of_drafts_that_changes_with_every_step_changes_nothing(name: str, tmp_path: Path) -> None:
    target = CASES[name].write_target(tmp_path)
    settings = json.loads(CASES[name].typed(tmp_path, 3))
    typed = json.dumps(settings | {"num_speculative_tokens": "auto", "max_num_speculative_tokens": 3})
    expected = tokens(build(target, graph_policy="none", **CACHE), requests())
    for policy, overlap in (("none", False), ("full_decode_only", True)):
        drafted = build(target, graph_policy=policy, overlap=overlap, speculative_config=typed, **CACHE)
        taken = at_random(drafted).taken
        assert drafted.graph_report()["dropped"] == []
        assert tokens(drafted, requests()) == expected
        assert set(taken) == {0, 1, 2, 3}


def watched(core: EngineCore) -> tuple[Watched, CausalLM]:
    """Put a record around the drafter of a core."""
    program = core._runner.program
    assert isinstance(program, RoundProgram) and isinstance(program.model, CausalLM)
    record = Watched(program.drafter)
    program.drafter = record
    return record, program.model


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("name", WITH_LAYERS)
def test_drafts_through_the_cache_are_those_computed_from_scratch(name: str, num_drafts: int, tmp_path: Path) -> None:
    """Over rounds of which tails are rejected at random, in batches that mix chunks of prompts with drafts."""
    case = CASES[name]
    assert case.from_scratch is not None
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
            expected = case.from_scratch(record.drafter, target, sequence[: position + 1])
            assert drafts[:num_wanted] == expected[:num_wanted]
            compared += 1
    assert compared >= 15
    assert 0 < core.stats().spec_decode_accepted_tokens < core.stats().spec_decode_draft_tokens


@pytest.mark.parametrize("name", CASES)
def test_cached_prefixes_and_preemptions_change_nothing(name: str, tmp_path: Path) -> None:
    """A cached block was computed with the token that followed in another sequence, and a victim begins again."""
    target = CASES[name].write_target(tmp_path)
    settings = {"graph_policy": "none", "kv_cache_memory_bytes": small_cache(CASES[name], num_blocks=30)}
    drafted = build(target, speculative_config=CASES[name].typed(tmp_path, 3), **settings)
    shared = [5, 9, 2, 7, 7, 1, 30, 12, 44, 3, 8, 61]
    given = [request(str(tail), [*shared, tail], max_tokens=24) for tail in range(6)]
    assert tokens(drafted, given) == tokens(build(target, graph_policy="none", **CACHE), given)
    stats = drafted.stats()
    assert stats.preemptions > 0
    assert stats.prefix_cache_hits > 0


@pytest.mark.parametrize("name", CASES)
def test_padding_never_reaches_a_token_that_counts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are fed past the end of a sequence, beside its last tokens; padding leaves anything in the null block."""
    monkeypatch.setitem(BACKENDS, "careless", "drafter_cases:CarelessPadding")
    target, typed = CASES[name].write_target(tmp_path), CASES[name].typed(tmp_path, 5)
    drafted = build(
        target,
        graph_policy="piecewise",
        graph_sizes=(32,),
        attention_backend="careless",
        speculative_config=typed,
        **CACHE,
    )
    given = [request(str(length), list(range(9, 9 + length)), max_tokens=6) for length in (1, 2, 3, 4, 5)]
    assert tokens(drafted, given) == tokens(build(target, graph_policy="none", **CACHE), given)
    assert "target piecewise" in drafted.stats().graph_steps


def small_cache(case: DrafterCase, num_blocks: int) -> int:
    """Bytes of ``num_blocks`` blocks of the target's layers and of the drafter's, which are of equal size."""
    num_layers = int(case.target.get("num_hidden_layers", 2)) + case.num_layers
    return num_blocks * 4 * num_layers * 2 * 2 * 8 * 4


def test_beside_random_weights_a_head_needs_none(tmp_path: Path) -> None:
    target, head = write_config(tmp_path / "target", **CASES["eagle3"].target), tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps(eagle3_config()))
    typed = json.dumps({"method": "eagle3", "model": str(head), "num_speculative_tokens": 2})
    drafted = build(target, graph_policy="none", speculative_config=typed, **CACHE)
    assert tokens(drafted, requests()) == tokens(build(target, graph_policy="none", **CACHE), requests())


def test_a_drafter_that_reads_inner_states_is_refused_beside_generated_code(tmp_path: Path) -> None:
    target, typed = CASES["eagle3"].write_target(tmp_path), CASES["eagle3"].typed(tmp_path, 2)
    with pytest.raises(ConfigError, match=r"--compile inductor with eagle3[\s\S]*2, 3, 4"):
        build(target, compile="inductor", speculative_config=typed, **CACHE)
