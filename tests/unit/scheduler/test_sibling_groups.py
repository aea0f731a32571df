"""Several outputs of one prompt: its full blocks are computed once and shared, its tail is not."""

import pytest
from simulated_device import request
from simulated_engine import SimulatedEngine

PROMPT = tuple(range(10))


def siblings(count, prompt=PROMPT, **options):
    return [request(f"s{index}", prompt, group="g", **options) for index in range(count)]


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_siblings_wait_for_the_first_and_compute_only_the_tail(prefix_caching):
    engine = SimulatedEngine(prefix_caching=prefix_caching, max_num_batched_tokens=6)
    engine.add(*siblings(3, max_tokens=6))
    batches = engine.run()
    assert [[r.request_id for r in batch.requests] for batch in batches[:3]] == [["s0"], ["s0"], ["s0", "s1", "s2"]]
    assert [a.num_computed_tokens for batch in batches for a in batch.admissions] == [0, 8, 8]
    appends = [append.block_ids for batch in batches[:3] for append in batch.block_appends if append.start == 0]
    assert appends[0][:2] == appends[1][:2] == appends[2][:2]
    assert len({append[2] for append in appends}) == 3
    engine.check_at_rest()


def test_without_prefix_caching_another_group_of_the_same_prompt_shares_nothing():
    engine = SimulatedEngine(prefix_caching=False)
    engine.add(*siblings(2))
    engine.run()
    engine.add(request("t0", PROMPT, group="h"), request("alone", PROMPT))
    batches = engine.run()
    assert [a.num_computed_tokens for batch in batches for a in batch.admissions] == [0, 0]
    assert engine.scheduler.stats().prefix_cache_queries == 0


def test_siblings_of_a_prompt_without_a_full_block_to_share_do_not_wait():
    engine = SimulatedEngine(block_size=4)
    engine.add(*siblings(3, prompt=(1, 2, 3, 4)))
    assert len(engine.step().requests) == 3


@pytest.mark.parametrize("num_steps", [0, 1])
def test_when_the_first_is_aborted_the_next_computes_the_prompt_for_the_rest(num_steps):
    engine = SimulatedEngine(max_num_batched_tokens=6, prefix_caching=False)
    engine.add(*siblings(4))
    for _ in range(num_steps):
        engine.step()
    engine.abort("s0")
    assert [r.request_id for r in engine.step().requests] == ["s1"]
    engine.abort("s2")
    engine.run()
    engine.check_at_rest()
    assert len(engine.output("s3")) == 4


def test_when_the_first_is_preempted_the_others_still_come_to_an_end():
    engine = SimulatedEngine(block_size=2, num_blocks=14, max_num_batched_tokens=3, policy="priority")
    engine.add(request("urgent", (7, 7, 7), max_tokens=16, priority=0))
    engine.step()
    engine.add(*siblings(3, prompt=tuple(range(18)), priority=1, max_tokens=3))
    batches = engine.run()
    leads = [a for batch in batches for a in batch.admissions if a.request.request_id == "s0"]
    assert [a.output_token_ids for a in leads[:2]] == [(), ()], "the leader was not preempted before it had its prompt"
    engine.check_at_rest()


def test_a_sibling_that_comes_late_finds_the_blocks_without_waiting():
    engine = SimulatedEngine(prefix_caching=False)
    engine.add(*siblings(1))
    engine.step()
    engine.add(request("late", PROMPT, group="g"))
    batch = engine.step()
    assert [a.num_computed_tokens for a in batch.admissions] == [8]
    engine.run()
    engine.check_at_rest()


def test_a_sibling_that_computes_the_whole_prompt_for_its_logprobs_releases_the_others():
    engine = SimulatedEngine(prefix_caching=False)
    engine.add(request("asks", PROMPT, group="g", prompt_logprobs=1), *siblings(2))
    assert [r.request_id for r in engine.step().requests] == ["asks", "s0"]
    assert [a.num_computed_tokens for a in engine.step().admissions] == [8]
    engine.run()
    engine.check_at_rest()
