"""Whole engines on the GPU, one per attention backend that is installed there: what no CPU can show.

Kernels round in another order where padding or the mode differs; tokens may then change places within the tolerance
that ``legato verify`` states, and a comparison of one request ends there.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_engine import Result, build, options, request, run, tokens, write_config

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.errors import BackendError, ModelNotFoundError
from legato.graphs.modes import GraphPolicy
from legato.loading.source import resolve_model
from legato.sampling.near_ties import NEAR_TIE, gap, scale, tolerance
from legato.verify.session import VerifyRequest, verify

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "golden_smollm2-135m-instruct.json"
CLEAR_IN_BFLOAT16 = 0.5
VOCAB_SIZE = 512
ENGINE: dict[str, object] = {
    "device": "cuda",
    "block_size": 16,
    "max_model_len": 256,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "kv_cache_memory_bytes": 16 << 20,
    "graph_sizes": (2, 8, 64),
}
BLOCK_SIZES = (16, 256)
"""Libraries of FlashAttention-2 read one or the other."""
REQUESTS = [
    request(f"{length} tokens", [(length * 31 + 7 * place) % VOCAB_SIZE for place in range(length)], **given)
    for length, given in [(1, {}), (5, {}), (40, {}), (130, {"max_tokens": 40}), (17, {"max_tokens": 70}), (64, {})]
    for given in [{"max_tokens": 24, "logprobs": 5} | given]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of a real one's head size, whose best tokens stand out."""
    shape = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 64}
    return write_config(
        tmp_path_factory.mktemp("model"),
        **shape,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=512,
        initializer_range=0.2,
        torch_dtype="bfloat16",
    )


def engine(folder: Path, backend: str, **changes: object) -> EngineCore:
    """Build the engine, or skip with the backend's reasons."""
    try:
        return build(folder, **ENGINE | {"attention_backend": backend} | changes)
    except BackendError as error:
        pytest.skip(f"{backend}: {error}")


def check_alike(expected: dict[str, Result], given: dict[str, Result]) -> None:
    """Compare tokens up to the first near-tie that fell the other way."""
    for name, result in expected.items():
        assert len(given[name].token_ids) == len(result.token_ids)
        for place, (token, position) in enumerate(zip(given[name].token_ids, result.logprobs, strict=True)):
            if token == position.token_id:
                continue
            allowed = NEAR_TIE * tolerance("bfloat16", scale(position, VOCAB_SIZE))
            assert gap(position, token) <= allowed, f"{name}: token {place} is {token}, not {position.token_id}"
            break


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_graphs_and_steps_launched_ahead_give_the_tokens_of_eager_steps(
    folder: Path, backend: str, block_size: int
) -> None:
    eager = run(engine(folder, backend, graph_policy="none", overlap=False, block_size=block_size), REQUESTS)
    for overlap in (False, True):
        core = engine(folder, backend, graph_policy="full_and_piecewise", overlap=overlap, block_size=block_size)
        assert core.graph_report()["dropped"] == []
        check_alike(eager, run(core, REQUESTS))
        decodes = [record for record in core.step_log.recent if record.num_tokens == record.num_reqs]
        assert {record.mode for record in decodes} == {core.graph_report()["uniform"]["1"]}


def test_with_a_graph_of_its_size_a_piecewise_step_gives_the_eager_steps_bits(folder: Path, backend: str) -> None:
    """Between segments attention takes the routine and the sizes of the eager step; nothing else is padded here."""
    eager, replayed = (
        engine(folder, backend, graph_policy=policy, graph_sizes=tuple(range(1, 65)), overlap=False)
        for policy in ("none", "piecewise")
    )
    assert run(replayed, REQUESTS) == run(eager, REQUESTS)
    assert {record.mode for record in replayed.step_log.recent} == {"piecewise"}


def test_verify_finds_nothing(folder: Path, backend: str) -> None:
    given = options(folder, **ENGINE | {"attention_backend": backend})
    policies = (GraphPolicy.FULL_AND_PIECEWISE, GraphPolicy.FULL)
    try:
        report = verify(VerifyRequest(options=given, policies=policies), Console(quiet=True))
    except BackendError as error:
        pytest.skip(f"{backend}: {error}")
    assert report.findings == []
    assert report.passed


@pytest.fixture(scope="module")
def golden() -> list[dict[str, Any]]:
    """The golden prompts, but for the one of 755 tokens."""
    if not GOLDEN.exists():
        pytest.skip(f"no golden tokens at {GOLDEN}")
    try:
        resolve_model("smollm2")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    prompts: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["prompts"]
    return [prompt for prompt in prompts if prompt["prompt_len"] < 100]


def num_clear(prompt: dict[str, Any]) -> int:
    """Return how many tokens bfloat16 must agree on before the first that it may decide otherwise."""
    gaps: Sequence[float] = prompt["top1_top2_logit_gap"]
    return next((place for place, found in enumerate(gaps) if found <= CLEAR_IN_BFLOAT16), len(gaps))


def test_the_default_model_continues_as_golden_wherever_that_is_clear(
    golden: list[dict[str, Any]], backend: str
) -> None:
    """Decode is compared up to the first unclear token; golden tokens are then fed, and each clear one must be best."""
    changes = {"graph_sizes": (2, 16, 128), "max_num_batched_tokens": 128, "kv_cache_memory_bytes": 256 << 20}
    given = ENGINE | changes | {"attention_backend": backend, "dtype": "bfloat16", "max_num_seqs": 16}
    try:
        core = build_engine(EngineOptions(model="smollm2", **given))
    except BackendError as error:
        pytest.skip(f"{backend}: {error}")
    got = tokens(core, [request(prompt["id"], prompt["prompt_ids"], max_tokens=64) for prompt in golden])
    for prompt in golden:
        clear = num_clear(prompt)
        assert got[prompt["id"]][:clear] == prompt["generated_ids"][:clear]
    assert sum(map(num_clear, golden)) > 20
    fed = {prompt["id"]: [*prompt["prompt_ids"], *prompt["generated_ids"]] for prompt in golden}
    results = run(core, [request(name, ids, max_tokens=1, prompt_logprobs=0) for name, ids in fed.items()])
    for prompt in golden:
        predicted = results[prompt["id"]].prompt_logprobs[prompt["prompt_len"] - 1 :]
        for entry, found in zip(predicted, prompt["top1_top2_logit_gap"], strict=True):
            assert found <= CLEAR_IN_BFLOAT16 or entry.rank == 1, f"{prompt['id']}: {entry.token_id}, {found} better"
