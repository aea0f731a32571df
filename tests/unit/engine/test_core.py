from pathlib import Path

import pytest
from tiny_engine import Result, build, kv_bytes, request, run, step, tokens, write_config

from legato.engine.core import EngineCore
from legato.errors import QueueFullError, RequestError
from legato.flow.request_update import FinishReason

SIZES = {"graph_sizes": (1, 4)}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> EngineCore:
    return build(write_config(tmp_path_factory.mktemp("model")), max_queue=6, **SIZES)


def test_an_idle_engine_has_no_work_and_a_step_gives_nothing(core: EngineCore) -> None:
    assert not core.has_work
    assert core.step() == []


def test_a_request_gets_as_many_tokens_as_it_asked_for(core: EngineCore) -> None:
    result = run(core, [request("one", [1, 2, 3], max_tokens=5)])["one"]
    assert len(result.token_ids) == 5
    assert result.finish_reason is FinishReason.LENGTH
    assert not core.has_work


def test_a_stop_token_ends_a_request_and_is_told(core: EngineCore) -> None:
    free = tokens(core, [request("free", [4, 5], max_tokens=8)])["free"]
    stop = free[3]
    core.add(request("stopped", [4, 5], max_tokens=8, stop_token_ids=(stop,)))
    updates = [update for _ in range(free.index(stop) + 1) for update in core.step()]
    assert [token for update in updates for token in update.token_ids] == free[: free.index(stop) + 1]
    assert (updates[-1].finish_reason, updates[-1].stop_reason) == (FinishReason.STOP, stop)
    assert not core.has_work


def test_every_step_leaves_one_record(core: EngineCore) -> None:
    before = len(core.step_log.recent)
    run(core, [request("a", [1] * 6, max_tokens=4), request("b", [2], max_tokens=2)])
    records = list(core.step_log.recent)[before:]
    assert len(records) == 4
    assert [record.step for record in records] == list(range(records[0].step, records[0].step + 4))
    assert [(record.num_reqs, record.num_tokens) for record in records] == [(2, 7), (2, 2), (1, 1), (1, 1)]
    assert all((record.reason is None) == (record.mode == "full") for record in records)
    assert all((record.key is None) == (record.mode == "eager") for record in records)
    assert all(record.host_us > 0 for record in records)


def test_the_counts_agree_with_the_records(tmp_path: Path) -> None:
    core = build(write_config(tmp_path), **SIZES)
    run(core, [request("a", [1] * 6, max_tokens=4), request("b", [2], max_tokens=4)])
    stats, records = core.stats(), core.step_log.recent
    assert stats.graph_steps == {"target eager": 1, "target full": 3}
    assert stats.graph_fallbacks == {"target disabled_by_user": 1}
    assert sum(stats.graph_replays.values()) == 3
    assert stats.graph_padding_tokens == sum(record.num_tokens_padded - record.num_tokens for record in records) == 6
    assert stats.graph_capture_seconds > 0
    assert (stats.prompt_tokens, stats.generation_tokens) == (7, 8)


def test_a_request_that_can_never_run_is_refused(core: EngineCore) -> None:
    with pytest.raises(RequestError, match="too long"):
        core.add(request("long", [1] * 64))
    with pytest.raises(RequestError, match="empty"):
        core.add(request("empty", []))
    assert not core.has_work


def test_a_full_queue_refuses_and_an_abort_makes_room(core: EngineCore) -> None:
    for number in range(6):
        core.add(request(str(number), [number + 1], max_tokens=3))
    with pytest.raises(QueueFullError):
        core.add(request("one too many", [1]))
    with pytest.raises(RequestError):
        core.add(request("0", [1]))
    assert len(core.abort([str(number) for number in range(6)])) == 6
    assert not core.has_work
    assert core.stats().kv_blocks_used == 0


def test_an_abort_between_steps_frees_blocks_at_once(core: EngineCore) -> None:
    core.add(request("gone", [1] * 9, max_tokens=9))
    core.step()
    assert core.stats().kv_blocks_used > 0
    (update,) = core.abort(["gone", "never was"])
    assert update.finish_reason is FinishReason.ABORT
    assert core.stats().kv_blocks_used == 0
    assert core.step() == []


def test_a_shared_prefix_is_computed_once_and_gives_the_same_tokens(tmp_path: Path) -> None:
    core = build(write_config(tmp_path), **SIZES)
    prompt = list(range(1, 18))
    first = tokens(core, [request("first", prompt)])["first"]
    before = core.step_log.recent[-1].step
    assert tokens(core, [request("second", prompt)])["second"] == first
    (prefill,) = [record for record in core.step_log.recent if record.step == before + 1]
    assert prefill.num_tokens == 1, "sixteen of seventeen tokens were found"
    core.reset_prefix_cache()
    before = core.step_log.recent[-1].step
    assert tokens(core, [request("third", prompt)])["third"] == first
    assert next(record for record in core.step_log.recent if record.step == before + 1).num_tokens == 17


def test_a_step_in_which_all_requests_only_prefill_tells_nothing(tmp_path: Path) -> None:
    core = build(write_config(tmp_path), max_num_batched_tokens=4, **SIZES)
    core.add(request("one", [1] * 9, max_tokens=1))
    assert core.step() == []
    assert core.step() == []
    (update,) = core.step()
    assert update.finish_reason is FinishReason.LENGTH


def test_preempted_requests_end_with_the_tokens_of_a_large_pool(tmp_path: Path) -> None:
    folder = write_config(tmp_path)
    requests = [request(str(number), [number] * 9, max_tokens=20, arrival=float(number)) for number in range(4)]
    large = build(folder, **SIZES)
    small = build(folder, kv_cache_memory_bytes=kv_bytes(num_blocks=17, block_size=4), **SIZES)
    assert tokens(large, requests) == tokens(small, requests)
    assert small.stats().preemptions > large.stats().preemptions == 0


def test_updates_are_new_tokens_only(core: EngineCore) -> None:
    core.add(request("one", [3, 1], max_tokens=3))
    results = {"one": Result()}
    lengths = []
    while core.has_work:
        step(core, results)
        lengths.append(len(results["one"].token_ids))
    assert lengths == [1, 2, 3]
