"""Two backends as one: each serves its batches, and neither is asked about the other's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from drafter_cases import CASES
from tiny_engine import build, request, tokens, write_config

from legato.attention.compilation import CompilingBackend
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.pair import paired
from legato.attention.planning import PlanningBackend, PreparedBatch
from legato.attention.protocol import AttentionMetadata
from legato.attention.registry import backends_named, load_backend
from legato.errors import BackendError

REQUESTS = [request("one", range(1, 30)), request("two", [40, 3]), request("three", range(5, 22), max_tokens=20)]


@dataclass(slots=True)
class Noting:
    """A backend that notes what it is asked."""

    setup: Any
    asked: list[Any] = field(default_factory=list)
    level: ClassVar[GraphSupport] = GraphSupport.ALWAYS
    name: ClassVar[str] = "noting"

    @classmethod
    def support(cls, setup: Any, spec: Any) -> Support:
        return Support(level=cls.level, reason=f"of {cls.name}")

    @classmethod
    def key_ints(cls, setup: Any, **batch: Any) -> tuple[tuple[str, int], ...]:
        return ((cls.name, batch["num_reqs"]),)

    def forward(self, layer: Any, query: Any, cache: Any, metadata: AttentionMetadata, out: Any) -> None:
        self.asked.append(metadata.query_len)


class Uniform(Noting):
    name = "uniform"


class Planned(Noting):
    """Plans every batch on the host, and compiles."""

    name = "planned"
    level = GraphSupport.UNIFORM_SINGLE_TOKEN

    def plans(self, query_len: int | None) -> bool:
        return True

    def prepare(self, batch: PreparedBatch) -> None:
        self.asked.append(batch)

    def compile_kernels(self, widths: tuple[int, ...], progress: Callable[[int, int, str], None]) -> None:
        self.asked.append(widths)


def batch(query_len: int | None) -> PreparedBatch:
    return PreparedBatch(num_reqs=1, query_len=query_len, query_lens=(1,), seq_lens=(1,))


@pytest.mark.parametrize(
    ("first", "second", "level"),
    [
        (Uniform, Uniform, GraphSupport.ALWAYS),
        (Uniform, Planned, GraphSupport.UNIFORM),
        (Planned, Uniform, GraphSupport.UNIFORM_SINGLE_TOKEN),
    ],
)
def test_uniform_graphs_need_the_first_backend_and_graphs_for_any_mix_need_both(
    first: type[Noting], second: type[Noting], level: GraphSupport
) -> None:
    support = paired(first, second).support(None, None)
    assert support.level is level
    assert f"of {first.name}" in support.reason and f"of {second.name}" in support.reason


def test_host_integers_are_those_of_the_backend_that_serves_the_batch() -> None:
    pair = paired(Uniform, Planned)
    assert pair.key_ints(None, num_reqs=3, query_len=4, max_seq_len=9) == (("uniform", 3),)
    assert pair.key_ints(None, num_reqs=3, query_len=None, max_seq_len=9) == (("planned", 3),)


def test_only_the_backend_that_plans_is_told_of_its_batches() -> None:
    pair = paired(Uniform, Planned)(None)
    assert isinstance(pair, PlanningBackend)
    assert not pair.plans(1) and pair.plans(None)
    pair.prepare(batch(None))
    assert (pair.uniform.asked, pair._others.asked) == ([], [batch(None)])
    other = paired(Planned, Uniform)(None)
    assert other.plans(1) and not other.plans(None)


def test_the_second_backend_compiles_nothing_for_uniform_batches() -> None:
    pair = paired(Planned, Planned)(None)
    assert isinstance(pair, CompilingBackend)
    pair.compile_kernels((1, 4), lambda *_: None)
    assert (pair.uniform.asked, pair._others.asked) == ([(1, 4)], [()])


def test_names_of_pairs_may_be_aliases_and_are_those_of_two_backends() -> None:
    assert backends_named("Triton_Attn+FA3") == ("triton+flash_attn_3",)
    assert backends_named("reference+flash_attn") == ("reference+flash_attn_3", "reference+flash_attn_2")
    assert load_backend("torch_sdpa+reference").name == "torch_sdpa+reference"
    for wrong in ("triton+", "a+triton", "triton+triton+triton"):
        with pytest.raises(BackendError, match="FIRST\\+SECOND"):
            backends_named(wrong)


@pytest.mark.parametrize("policy", ["full_and_piecewise", "full", "none"])
def test_an_engine_over_a_pair_gives_the_tokens_of_one_backend_and_keeps_its_full_graphs(
    tmp_path: Path, policy: str
) -> None:
    folder = write_config(tmp_path)
    engine = build(folder, attention_backend="torch_sdpa+reference", graph_policy=policy)
    assert engine.config.attention_backend == "torch_sdpa+reference"
    assert tokens(engine, REQUESTS) == tokens(build(folder, attention_backend="reference"), REQUESTS)
    modes = {record.mode for record in engine.step_log.recent}
    assert ("full" in modes) == (policy != "none")


@pytest.mark.parametrize("policy", ["full_and_piecewise", "piecewise"])
def test_rounds_of_a_drafter_over_a_pair_give_the_tokens_of_plain_decoding(tmp_path: Path, policy: str) -> None:
    target = CASES["eagle3"].write_target(tmp_path)
    room = {"kv_cache_memory_bytes": 4_000_000, "attention_backend": "torch_sdpa+reference", "graph_policy": policy}
    drafted = build(target, speculative_config=CASES["eagle3"].typed(tmp_path, 3), graph_sizes=(8, 32), **room)
    assert drafted.graph_report()["dropped"] == []
    assert tokens(drafted, REQUESTS) == tokens(build(target, **room), REQUESTS)
