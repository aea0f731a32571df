"""The default model continues as transformers does, in every graph policy, chunked or not, alone and batched.

The golden file holds the greedy tokens of the weights dequantised to float32, and the gap between the two best logits
at each. Where that gap is a near-tie the other token is allowed, and the comparison of that prompt ends there.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_engine import request, run, tokens

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.errors import ModelNotFoundError
from legato.graphs.modes import GraphPolicy
from legato.loading.source import resolve_model

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "golden_smollm2-135m-instruct.json"
NEAR_TIE = 0.02
"""Logits differ by up to 2e-4 between float32 computations; nothing above this gap may flip."""
CLEAR_IN_BFLOAT16 = 0.5
CHUNKED, WHOLE = 64, 1024
"""max_num_batched_tokens. The longest prompt has 755 tokens, all of them 1079."""
SIZES = {CHUNKED: (1, 12, 64), WHOLE: (1, 12)}
ALL_PROMPTS = {("full_and_piecewise", CHUNKED): 64, ("full_decode_only", WHOLE): 64, ("full", CHUNKED): 32}
"""Tokens of those that are checked on every prompt. The rest: all prompts but the longest, 8 tokens."""
ALONE = ("raw_capital", "raw_unicode", "chat_italy")
FEW_TOKENS = 8


def missing() -> str | None:
    """Return what is lacking for these tests, or None."""
    if not GOLDEN.exists():
        return f"no golden tokens at {GOLDEN}"
    try:
        resolve_model("smollm2")
    except ModelNotFoundError as error:
        return str(error)
    return None


pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def golden() -> list[dict[str, Any]]:
    prompts: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["prompts"]
    return prompts


def build(**changes: object) -> EngineCore:
    defaults: dict[str, object] = {
        "device": "cpu",
        "dtype": "float32",
        "max_model_len": 1024,
        "max_num_seqs": 12,
        "kv_cache_memory_bytes": 200_000_000,
    }
    return build_engine(EngineOptions(**(defaults | changes)))


def check(prompt: dict[str, Any], got: Sequence[int], num_tokens: int) -> None:
    """Compare up to the first near-tie that fell the other way."""
    assert len(got) == num_tokens
    for position, (token, expected) in enumerate(zip(got, prompt["generated_ids"], strict=False)):
        if token == expected:
            continue
        gap = prompt["top1_top2_logit_gap"][position]
        assert gap < NEAR_TIE, f"{prompt['id']}: token {position} is {token}, not {expected} ({gap} better)"
        if position < len(prompt["top5_first4"]):
            assert token in prompt["top5_first4"][position]["ids"][:2]
        return


def check_batch(core: EngineCore, prompts: Sequence[dict[str, Any]], num_tokens: int) -> None:
    got = tokens(core, [request(prompt["id"], prompt["prompt_ids"], max_tokens=num_tokens) for prompt in prompts])
    for prompt in prompts:
        check(prompt, got[prompt["id"]], num_tokens)


@pytest.fixture(
    scope="module",
    params=[(str(policy), budget) for policy in GraphPolicy for budget in (CHUNKED, WHOLE)],
    ids=lambda combination: f"{combination[0]}-{'chunked' if combination[1] == CHUNKED else 'whole'}",
)
def engine(request: pytest.FixtureRequest) -> EngineCore:
    policy, budget = request.param
    return build(graph_policy=policy, max_num_batched_tokens=budget, graph_sizes=SIZES[budget])


def test_a_batch_of_golden_prompts_gets_the_golden_tokens(engine: EngineCore) -> None:
    combination = engine.config.graph_policy, engine.config.scheduler.max_num_batched_tokens
    if combination in ALL_PROMPTS:
        check_batch(engine, golden(), ALL_PROMPTS[combination])
    else:
        check_batch(engine, [prompt for prompt in golden() if prompt["prompt_len"] < 100], FEW_TOKENS)


def test_a_golden_prompt_alone_gets_the_golden_tokens(engine: EngineCore) -> None:
    engine.reset_prefix_cache()
    prompts = [prompt for prompt in golden() if prompt["id"] in ALONE]
    assert len(prompts) == len(ALONE)
    for prompt in prompts:
        check_batch(engine, [prompt], FEW_TOKENS)


def test_every_step_ran_as_the_policy_promised(engine: EngineCore) -> None:
    """Prompts beyond the largest captured size are the only exception, where they are not cut."""
    report = engine.graph_report()
    assert report["dropped"] == []
    decodes = [record for record in engine.step_log.recent if record.num_tokens == record.num_reqs]
    assert {record.mode for record in decodes} <= {report["uniform"]["1"], report["mixed"]}
    if engine.config.scheduler.max_num_batched_tokens == CHUNKED:
        assert all(record.mode == record.requested for record in engine.step_log.recent)


def test_the_reference_backend_gets_the_golden_tokens() -> None:
    core = build(graph_policy="full_decode_only", attention_backend="reference", graph_sizes=(3,), max_model_len=64)
    check_batch(core, [prompt for prompt in golden() if prompt["id"] in ALONE], FEW_TOKENS)


def test_bfloat16_finds_every_golden_token_that_is_clearly_best() -> None:
    """Golden tokens are fed, so that one flipped token does not change what is asked about the next."""
    core = build(dtype="bfloat16", graph_policy="none", max_num_batched_tokens=256)
    prompts = [prompt for prompt in golden() if prompt["prompt_len"] < 100]
    fed = {prompt["id"]: [*prompt["prompt_ids"], *prompt["generated_ids"]] for prompt in prompts}
    results = run(core, [request(name, ids, max_tokens=1, prompt_logprobs=0) for name, ids in fed.items()])
    checked = 0
    for prompt in prompts:
        predicted = results[prompt["id"]].prompt_logprobs[prompt["prompt_len"] - 1 :]
        for position, (entry, gap) in enumerate(zip(predicted, prompt["top1_top2_logit_gap"], strict=True)):
            assert entry.token_id == prompt["generated_ids"][position]
            if gap > CLEAR_IN_BFLOAT16:
                checked += 1
                assert entry.rank == 1, f"{prompt['id']}: token {position}, {gap} better in float32"
    assert checked > 300
