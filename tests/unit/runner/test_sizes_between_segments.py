"""Between two segments attention has the step's own sizes: a backend is called as where no graph serves the step."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from drafter_cases import CASES
from tiny_engine import build, request, run, write_config

from legato.attention.backends.torch_sdpa import TorchSdpaBackend
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.registry import BACKENDS
from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.kvcache.storage import LayerCache

CACHE = {"kv_cache_memory_bytes": 4_000_000}


class Witness(TorchSdpaBackend):
    """Keeps what it is called with, and rounds uniform batches otherwise, as a routine of their own does.

    No full graph holds it in these tests.
    """

    name: ClassVar[str] = "witness"
    calls: ClassVar[list[dict[str, object]]] = []

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        assert out.shape == query.shape
        assert out.is_contiguous()
        self.calls.append(
            {
                "layer": layer.index,
                "query_len": metadata.query_len,
                "num_reqs": metadata.num_reqs,
                "num_tokens": metadata.num_tokens,
                "max_query_len": metadata.max_query_len,
                "key_ints": metadata.key_ints,
                "query": len(query),
                "query_start_loc": metadata.query_start_loc.tolist(),
                "seq_lens": metadata.seq_lens.tolist(),
                "num_table_rows": len(metadata.block_table),
                "num_slots": len(metadata.slot_mapping),
                "contexts": [
                    metadata.block_table[index, : -(-seq_len // cache.key.shape[1])].tolist()
                    for index, seq_len in enumerate(metadata.seq_lens.tolist())
                ],
                "slots": metadata.slot_mapping.tolist(),
            }
        )
        super().forward(layer, query, cache, metadata, out)
        if metadata.query_len is not None:
            out.mul_(1 + 2**-20)


@pytest.fixture(autouse=True)
def witness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(BACKENDS, Witness.name, f"{__name__}:Witness")
    yield
    Witness.calls.clear()


def requests() -> list[Request]:
    """Three of four that fit, of other lengths, so that steps are mixed first and uniform at last."""
    return [request(f"{length}", range(3, 3 + length), max_tokens=8) for length in (5, 1, 9)]


def calls_of(core: EngineCore, given: list[Request]) -> list[list[dict[str, object]]]:
    """Run the requests; return what the backend was called with in each step."""
    steps = []
    for one in given:
        core.add(one)
    while core.has_work:
        Witness.calls.clear()
        core.step()
        steps.append(Witness.calls.copy())
    return steps


def test_a_uniform_decode_is_called_as_one_and_a_mixed_batch_with_its_own_bounds(tmp_path: Path) -> None:
    core = build(write_config(tmp_path), attention_backend="witness", graph_policy="piecewise", graph_sizes=(4, 32))
    mixed, *decodes = calls_of(core, requests())
    assert {record.mode for record in core.step_log.recent} == {"piecewise"}
    for call in mixed:
        assert (call["query_len"], call["num_reqs"], call["num_tokens"], call["max_query_len"]) == (None, 3, 15, 9)
    for number, step in enumerate(decodes, start=1):
        for call in step:
            assert (call["query_len"], call["num_reqs"], call["num_tokens"], call["max_query_len"]) == (1, 3, 3, 1)
            assert call["seq_lens"] == [5 + number, 1 + number, 9 + number]


def test_each_call_is_the_eager_steps_own(tmp_path: Path) -> None:
    folder = write_config(tmp_path)
    eager, replayed = (
        calls_of(build(folder, attention_backend="witness", graph_policy=policy, graph_sizes=(2, 4, 32)), requests())
        for policy in ("none", "piecewise")
    )
    assert replayed == eager


def test_a_graph_for_any_mix_is_made_and_proven_with_decodes_and_with_mixes(tmp_path: Path) -> None:
    build(write_config(tmp_path), attention_backend="witness", graph_policy="piecewise", graph_sizes=(4,))
    assert {(call["query_len"], call["num_reqs"], call["max_query_len"]) for call in Witness.calls} == {
        (1, 3, 1),
        (None, 2, 2),
    }


@pytest.mark.parametrize("name", ["eagle3", "draft_model of another form"])
def test_each_call_of_a_round_is_the_eager_rounds_own(name: str, tmp_path: Path) -> None:
    """Target, the drafter's pass over the step's tokens, and its passes over the requests."""
    target, typed = CASES[name].write_target(tmp_path), CASES[name].typed(tmp_path, 3)
    given = {"attention_backend": "witness", "speculative_config": typed, **CACHE}
    engines = [build(target, graph_policy="none", **given)]
    engines.append(build(target, graph_policy="piecewise", graph_sizes=(4, 16, 32), **given))
    eager, replayed = (calls_of(core, requests()) for core in engines)
    assert replayed == eager
    assert {call["query_len"] for step in replayed for call in step} == {None, 1, 4}
    ran = {(record.stage, record.mode) for record in engines[1].step_log.recent}
    assert ran == {("target", "piecewise"), ("extend", "piecewise"), ("draft", "piecewise")}


def test_with_a_graph_of_its_size_a_step_gives_the_eager_steps_bits(tmp_path: Path) -> None:
    folder = write_config(tmp_path)
    given = [replace(one, params=replace(one.params, logprobs=5)) for one in requests()]
    eager, replayed = (
        run(build(folder, attention_backend="witness", graph_policy=policy, graph_sizes=(3, 15)), given)
        for policy in ("none", "piecewise")
    )
    assert replayed == eager
