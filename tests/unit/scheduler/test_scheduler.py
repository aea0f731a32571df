"""Forming batches: order, budget, chunks, rows, preemption, limits."""

import pytest
from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.config.engine import CacheConfig, SchedulerConfig
from legato.errors import ConfigError, QueueFullError, RequestError
from legato.flow.request_update import FinishReason
from legato.kvcache.spec import FullAttentionSpec, LayerGroup, RecurrentSpec, SlidingWindowSpec
from legato.scheduler.scheduler import Scheduler


def ids(batch):
    return [scheduled.request_id for scheduled in batch.requests]


def prompt(length, first=0):
    return (first, *(index % 7 for index in range(length - 1)))


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_and_samples_only_at_its_end():
    engine = SimulatedEngine(max_num_batched_tokens=5)
    engine.add(request("a", prompt(12), max_tokens=2))
    steps = [batch.requests[0] for batch in engine.run()]
    assert [step.query_len for step in steps] == [5, 5, 2, 1]
    assert [step.num_computed_tokens for step in steps] == [0, 5, 10, 12]
    assert [step.samples for step in steps] == [False, False, True, True]
    assert [step.num_output_tokens for step in steps] == [0, 0, 0, 1]


def test_a_one_token_prompt_and_a_last_chunk_of_one_token_are_not_decodes():
    engine = SimulatedEngine(max_num_batched_tokens=5)
    engine.add(request("whole", prompt(1), max_tokens=2))
    assert [(r.query_len, r.is_decode) for batch in engine.run() for r in batch.requests] == [(1, False), (1, True)]
    engine.add(request("tail", prompt(6), max_tokens=2))
    steps = [(r.query_len, r.is_decode) for batch in engine.run() for r in batch.requests]
    assert steps == [(5, False), (1, False), (1, True)]


def test_a_recomputation_of_one_token_is_not_a_decode():
    """All but the last generated token are found in the prefix cache, and yet this row did not generate it."""
    engine = SimulatedEngine(block_size=4, num_blocks=7)
    engine.add(request("old", prompt(15), max_tokens=6), request("young", prompt(8, first=5), max_tokens=8))
    young = [r for batch in engine.run() for r in batch.requests if r.request_id == "young"]
    assert engine.scheduler.stats().preemptions > 0
    again = [r for r in young if r.num_output_tokens > 0 and not r.is_decode]
    assert again, "the preempted request was not computed again"
    assert all(r.num_computed_tokens + r.query_len == 8 + r.num_output_tokens for r in again)
    engine.check_at_rest()


def test_decodes_come_before_prefills_in_progress_and_those_before_new_requests():
    engine = SimulatedEngine(max_num_batched_tokens=8)
    engine.add(request("decoding", prompt(2), max_tokens=9), request("long", prompt(20, first=1)))
    first = engine.step()
    assert [(r.request_id, r.query_len) for r in first.requests] == [("decoding", 2), ("long", 6)]
    engine.add(request("new", prompt(3, first=2)))
    assert [(r.request_id, r.query_len) for r in engine.step().requests] == [("decoding", 1), ("long", 7)]
    assert [(r.request_id, r.query_len) for r in engine.step().requests] == [("decoding", 1), ("long", 7)]
    assert ids(engine.step()) == ["decoding", "long", "new"]


def test_first_come_is_first_served_by_time_of_arrival_whatever_the_priority():
    engine = SimulatedEngine(max_num_seqs=1, policy="fcfs")
    engine.add(request("later", prompt(3), arrival=2.0, priority=-1), request("earlier", prompt(3), arrival=1.0))
    order = [ids(batch)[0] for batch in engine.run()]
    assert order == ["earlier"] * 4 + ["later"] * 4


def test_the_priority_policy_serves_lower_numbers_first_and_equal_ones_by_arrival():
    engine = SimulatedEngine(max_num_seqs=1, policy="priority")
    engine.add(
        request("c", prompt(3), max_tokens=1, priority=1, arrival=1.0),
        request("b", prompt(3), max_tokens=1, priority=0, arrival=3.0),
        request("a", prompt(3), max_tokens=1, priority=0, arrival=2.0),
    )
    assert [ids(batch)[0] for batch in engine.run()] == ["a", "b", "c"]


def test_an_unknown_policy_is_an_error_that_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"fcfs \| priority"):
        SimulatedEngine(policy="shortest")


def test_a_waiting_request_without_blocks_is_not_overtaken_by_a_smaller_one():
    engine = SimulatedEngine(block_size=4, num_blocks=7, max_num_batched_tokens=64)
    engine.add(request("running", prompt(12), max_tokens=5))
    engine.step()
    engine.add(request("large", prompt(16, first=1)), request("small", prompt(2, first=2)))
    order = [request_id for batch in engine.run() for request_id in ids(batch)]
    assert order.index("large") < order.index("small")


def test_the_smallest_free_row_is_taken_and_kept_to_the_end():
    engine = SimulatedEngine(max_num_seqs=3)
    engine.add(*(request(name, prompt(3), max_tokens=9) for name in "abc"))
    assert [a.row for a in engine.step().admissions] == [0, 1, 2]
    engine.abort("b")
    engine.add(request("d", prompt(3)))
    batch = engine.step()
    assert batch.released_rows == (1,)
    assert [(a.row, a.request.request_id) for a in batch.admissions] == [(1, "d")]
    assert {r.request_id: r.row for r in batch.requests} == {"a": 0, "c": 2, "d": 1}
    engine.run()
    engine.check_at_rest()


def test_rows_released_while_nothing_runs_are_reported_with_the_next_batch():
    engine = SimulatedEngine()
    engine.add(request("a", prompt(3)))
    engine.step()
    engine.abort("a")
    assert engine.scheduler.schedule() is None
    assert not engine.scheduler.has_work
    engine.add(request("b", prompt(3)))
    assert engine.step().released_rows == (0,)


def test_the_last_in_order_is_preempted_and_keeps_its_output():
    engine = SimulatedEngine(block_size=4, num_blocks=9, prefix_caching=False)
    engine.add(request("old", prompt(10), max_tokens=20), request("young", prompt(10, first=5), max_tokens=20))
    batches = engine.run()
    assert engine.scheduler.stats().preemptions >= 1
    readmitted = [a for batch in batches for a in batch.admissions if a.output_token_ids]
    assert {a.request.request_id for a in readmitted} == {"young"}
    output = output_alone(engine.requests["young"], 64)
    assert all(a.output_token_ids == output[: len(a.output_token_ids)] for a in readmitted)
    engine.check_at_rest()


def test_under_the_priority_policy_the_least_urgent_is_preempted_though_it_came_first():
    engine = SimulatedEngine(block_size=4, num_blocks=9, policy="priority")
    engine.add(request("batch", prompt(10), max_tokens=20, priority=5))
    engine.step()
    engine.add(request("urgent", prompt(10, first=5), max_tokens=20, priority=0))
    readmitted = [a.request.request_id for batch in engine.run() for a in batch.admissions if a.output_token_ids]
    assert set(readmitted) == {"batch"}
    engine.check_at_rest()


def test_blocks_freed_by_a_preemption_go_to_those_still_running_and_to_no_new_request_in_that_step():
    engine = SimulatedEngine(block_size=4, num_blocks=9)
    engine.add(*(request(name, prompt(8, first=index), max_tokens=20) for index, name in enumerate("abc")))
    num_preempting = 0
    while engine.scheduler.has_work:
        before = engine.scheduler.stats().preemptions
        batch = engine.step()
        if engine.scheduler.stats().preemptions > before:
            num_preempting += 1
            assert batch.admissions == ()
            assert batch.released_rows
    assert num_preempting > 0
    engine.check_at_rest()


def test_a_preemption_counts_neither_the_prompt_nor_its_lookup_twice():
    engine = SimulatedEngine(block_size=4, num_blocks=12)
    engine.add(request("old", prompt(16), max_tokens=20), request("young", prompt(16, first=5), max_tokens=20))
    engine.run()
    stats = engine.scheduler.stats()
    assert stats.preemptions > 0
    assert (stats.prompt_tokens, stats.generation_tokens) == (32, 40)
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (32, 0)
    assert {update.num_cached_tokens for update in engine.updates["young"]} == {0}


def test_a_prompt_computed_again_from_its_start_is_counted_once():
    engine = SimulatedEngine(block_size=4, num_blocks=9, prefix_caching=False)
    engine.add(request("old", prompt(10), max_tokens=20), request("young", prompt(10, first=5), max_tokens=20))
    starts = [r.num_computed_tokens for batch in engine.run() for r in batch.requests if r.request_id == "young"]
    assert starts.count(0) > 1
    assert engine.scheduler.stats().prompt_tokens == 20


def test_a_preempted_request_finds_its_own_blocks_in_the_prefix_cache():
    engine = SimulatedEngine(block_size=4, num_blocks=12)
    engine.add(request("old", prompt(16), max_tokens=20), request("young", prompt(16, first=5), max_tokens=20))
    readmitted = [a for batch in engine.run() for a in batch.admissions if a.output_token_ids]
    assert any(a.num_computed_tokens > 0 for a in readmitted)
    engine.check_at_rest()


def test_a_prompt_that_leaves_no_room_for_output_is_refused():
    engine = SimulatedEngine(max_model_len=16)
    with pytest.raises(RequestError, match="16 prompt tokens") as refused:
        engine.add(request("a", prompt(16)))
    assert refused.value.param == "prompt"
    engine.add(request("b", prompt(15)))
    engine.run()
    assert len(engine.output("b")) == 1
    assert engine.finish_reason("b") is FinishReason.LENGTH


def test_an_empty_prompt_is_refused():
    with pytest.raises(RequestError, match="empty"):
        SimulatedEngine().add(request("a", ()))


def test_a_request_that_outgrows_the_whole_pool_is_refused_and_one_that_fills_it_is_served():
    engine = SimulatedEngine(block_size=4, num_blocks=4)
    with pytest.raises(RequestError, match="4 blocks of 4 tokens"):
        engine.add(request("too-large", prompt(8), max_tokens=6))
    engine.add(request("fits", prompt(8), max_tokens=5))
    engine.run()
    engine.check_at_rest()


def test_a_full_queue_refuses_and_accepts_again_when_a_request_has_ended():
    engine = SimulatedEngine(max_queue=2)
    engine.add(request("a", prompt(3)), request("b", prompt(3)))
    with pytest.raises(QueueFullError, match="2 held"):
        engine.add(request("c", prompt(3)))
    engine.abort("a")
    engine.add(request("c", prompt(3)))
    engine.run()
    engine.check_at_rest()


def test_an_id_in_use_is_refused_and_free_again_after_the_end():
    engine = SimulatedEngine()
    engine.add(request("a", prompt(3)))
    with pytest.raises(RequestError, match="in use"):
        engine.add(request("a", prompt(3)))
    engine.run()
    engine.add(request("a", prompt(3)))


def test_abort_frees_blocks_at_once_and_ignores_unknown_ids():
    engine = SimulatedEngine()
    engine.add(request("a", prompt(9)), request("waiting", prompt(9)))
    engine.step()
    assert engine.scheduler.stats().kv_blocks_used > 0
    updates = engine.scheduler.abort(["a", "nobody", "waiting"])
    assert [(u.request_id, u.finish_reason) for u in updates] == [
        ("a", FinishReason.ABORT),
        ("waiting", FinishReason.ABORT),
    ]
    assert engine.scheduler.stats().kv_blocks_used == 0
    assert not engine.scheduler.has_work


def test_a_request_aborted_during_its_step_is_ignored_even_when_its_id_comes_back():
    engine = SimulatedEngine()
    engine.add(request("a", prompt(5)), request("b", prompt(6)))
    batch = engine.scheduler.schedule()
    output = engine.device.execute(batch)
    engine.scheduler.abort(["a"])
    engine.add(request("a", prompt(3, first=4)))
    assert [u.request_id for u in engine.scheduler.commit(batch, output)] == ["b"]
    engine.requests.pop("b")
    engine.run()
    engine.check_at_rest()


def test_many_more_requests_than_tokens_in_a_step_are_served_in_turn():
    engine = SimulatedEngine(max_num_seqs=8, max_num_batched_tokens=2)
    engine.add(*(request(name, prompt(1, first=index)) for index, name in enumerate("abcdefgh")))
    assert all(batch.num_tokens <= 2 for batch in engine.run())
    engine.check_at_rest()


def test_groups_of_layers_of_other_kinds_need_no_change_of_the_scheduler():
    attention = FullAttentionSpec(num_kv_heads=1, head_dim=4)
    window = SlidingWindowSpec(num_kv_heads=1, head_dim=4, window=8)
    hybrid = (
        LayerGroup(name="full", layers=(0,), spec=attention),
        LayerGroup(name="window", layers=(1,), spec=window),
        LayerGroup(name="state", layers=(2,), spec=RecurrentSpec(state_elements=16)),
    )
    engine = SimulatedEngine(layer_groups=hybrid)
    engine.add(*(request(name, prompt(9), max_tokens=9, group="g") for name in "abc"))
    engine.run()
    engine.check_at_rest()
    assert engine.scheduler.stats().prefix_cache_queries == 0, "a recurrent state is not shared by blocks"


def test_a_recurrent_model_keeps_one_block_per_request():
    config = SchedulerConfig(max_model_len=1000, max_num_seqs=2, max_num_batched_tokens=99, policy="fcfs", max_queue=9)
    state = LayerGroup(name="state", layers=(0,), spec=RecurrentSpec(state_elements=16))
    cache = CacheConfig(block_size=4, num_blocks=3, prefix_caching=True)
    scheduler = Scheduler(config, cache, (state,))
    scheduler.add(request("a", prompt(90), max_tokens=500))
    scheduler.add(request("b", prompt(90), max_tokens=500))
    batch = scheduler.schedule()
    assert [len(append.block_ids) for append in batch.block_appends] == [1, 1]
    assert scheduler.stats().kv_blocks_used == 2


def test_the_counts_are_those_of_what_was_served():
    engine = SimulatedEngine(block_size=4)
    engine.add(request("a", prompt(9), max_tokens=3))
    engine.step()
    stats = engine.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used, stats.kv_blocks_total) == (1, 0, 3, 64)
    engine.run()
    engine.add(request("b", prompt(9), max_tokens=3))
    engine.run()
    stats = engine.scheduler.stats()
    assert (stats.prompt_tokens, stats.generation_tokens) == (18, 6)
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (18, 8)
    assert [update.num_cached_tokens for update in engine.updates["b"]] == [8, 8, 8]
