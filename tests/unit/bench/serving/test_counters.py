"""Counters of servers: Legato's own, vLLM's, and text that is none."""

import pytest
from scripted_http import scripted_server

from legato.bench.serving.counters import ServerFigures, parse_counters, read_counters, server_figures
from legato.observability.metrics import Metrics
from legato.observability.stats import EngineStats

VLLM = """
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_drafts_total{{engine="1",model_name="m"}} 10.0
# HELP vllm:spec_decode_num_drafts_created Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{{engine="0",model_name="m"}} 1.7e+09
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {draft_tokens}
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {second}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {first}
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0"}} 100.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
"""


def test_vllms_counters_give_acceptance_between_two_readings() -> None:
    before = parse_counters(VLLM.format(drafts=100, draft_tokens=200, accepted=100, first=80, second=20, hits=0))
    after = parse_counters(VLLM.format(drafts=110, draft_tokens=220, accepted=112, first=88, second=24, hits=0))
    found = server_figures(before, after, seconds=1.0)
    assert found.acceptance is not None
    assert (found.acceptance.drafts, found.acceptance.length, found.acceptance.share) == (10, 2.2, 0.6)
    assert found.acceptance.per_position == (0.8, 0.4)
    assert (found.shares, found.prefix_hit_share, found.preemptions) == (None, None, None)


def test_our_own_counters_give_graph_modes_padding_and_hits() -> None:
    metrics = Metrics()
    before = parse_counters(metrics.render(EngineStats(graph_steps={"target eager": 5})).decode())
    stats = EngineStats(
        graph_steps={"target eager": 6, "target full": 9, "draft full": 0},
        graph_padding_tokens=20,
        prompt_tokens=100,
        generation_tokens=50,
        prefix_cache_queries=100,
        prefix_cache_hits=70,
        preemptions=2,
        spec_decode_drafts=4,
        spec_decode_draft_tokens=8,
        spec_decode_accepted_tokens=4,
        spec_decode_accepted_per_position=[3, 1],
    )
    found = server_figures(before, parse_counters(metrics.render(stats).decode()), seconds=1.0)
    assert found.shares is not None and found.acceptance is not None
    assert (found.shares.steps, found.shares.full, found.shares.eager) == (10, 0.9, 0.1)
    assert found.shares.padding == pytest.approx(20 / (20 + 100 - 70 + 50 - 4 + 8))
    assert (found.prefix_hit_share, found.preemptions) == (0.7, 2)
    assert (found.acceptance.length, found.acceptance.per_position) == (2.0, (0.75, 0.25))


def test_a_server_without_counters_tells_nothing() -> None:
    with scripted_server(metrics=("no metrics { at all", "")) as server:
        assert read_counters(server.url, None) is None
        empty = read_counters(f"{server.url}/v1", None)
        assert empty is not None
        assert server_figures(empty, empty, seconds=1.0) == ServerFigures()
        url = server.url
    assert read_counters(url, None) is None
    assert server_figures(None, None, seconds=1.0) == ServerFigures()
