"""The programs that soak a server and plant faults in it, small: they find nothing, and would find what there is."""

import argparse
import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import soak
from fault_setting import Setting
from faults import plant
from served import Server, serving
from soak_client import Choice, difference
from soak_questions import KINDS
from soak_watch import leaks, memory_growth

SMALL = ("--kv-cache-memory-bytes", "4000000", "--enforce-eager")


@pytest.fixture(scope="module")
def server(tiny_model: Path):
    pytest.importorskip("xgrammar")
    with serving([*soak.OWN_OPTIONS, *SMALL, "--model", str(tiny_model)]) as running:
        yield running


def run_soak(server: Server, seconds: float) -> dict:
    options = argparse.Namespace(minutes=seconds / 60, seed=3, rate=25.0, in_flight=16, questions=16)
    return asyncio.run(soak.soak(server.url, server, options))


def test_a_short_soak_finds_nothing_wrong(server):
    row = run_soak(server, 4)
    assert row["violations"] == []
    counts = {(entry["kind"], entry["outcome"]): entry["count"] for entry in row["outcomes"]}
    assert all(counts.get((kind, "right answer"), 0) > 0 for kind in KINDS)
    assert counts["bad", "bad request, refused as it must be"] > 0
    assert sum(count for (_, outcome), count in counts.items() if outcome == "left, right so far") > 0


def test_a_soak_finds_wrong_answers(server, monkeypatch):
    learn = soak.Soak.learn

    async def learn_wrongly(self):
        await learn(self)
        for _, answer in self._expected[:12]:
            answer[0].token_ids[0] += 1

    monkeypatch.setattr(soak.Soak, "learn", learn_wrongly)
    row = run_soak(server, 2)
    assert row["wrong_answers"] > 0
    assert "token_ids" in row["violations"][0]


def test_an_answer_must_be_equal_and_a_part_of_one_its_beginning():
    right = {0: Choice(text="abc", token_ids=[1, 2, 3], logprobs=[-1.0], finish_reason="length")}
    part = {0: Choice(text="ab", token_ids=[1, 2])}
    assert difference(right, right, partial=False) is None
    assert difference(right, part, partial=True) is None
    assert difference(right, {}, partial=True) is None
    for wrong in (part, {}, {0: Choice(text="abc", token_ids=[1, 2, 3], logprobs=[-1.1], finish_reason="length")}):
        assert difference(right, wrong, partial=False) is not None
    for wrong in ({0: Choice(text="ac")}, {0: Choice(text="abcd")}, {0: Choice(text="abc", finish_reason="stop")}):
        assert difference(right, wrong, partial=True) is not None


def test_memory_that_grows_with_time_is_a_leak_and_what_warming_up_takes_is_none():
    def samples(memory):
        return [{"server_mib": each, "kv_used_share": 0.0, "server_files": 9.0} for each in memory]

    warm = samples([100.0] * 10 + [180.0] * 90)
    growing = samples([100.0 + each for each in range(100)])
    assert leaks(warm, warm[0], warm[-1]) == []
    assert len(leaks(growing, growing[0], growing[-1])) == 1
    assert memory_growth([1.0, 2.0]) is None
    held = warm[-1] | {"kv_used_share": 0.1, "server_files": 30.0}
    assert len(leaks(warm, warm[0], held)) == 2


def test_a_planted_fault_is_told_with_what_was_done_seen_and_recovered(tiny_model):
    row = plant("out of KV blocks", Setting(model=str(tiny_model), quick=True, options=SMALL))
    assert row["failed"] == []
    assert row["done"].startswith("Twelve requests at once")
    assert row["saw"] and row["recovered"]
    assert row["figures"]["preemptions"] > 0
