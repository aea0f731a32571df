"""A step is formed while the one before it is in flight: what it may count on, and what waits for the commit."""

import pytest
from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.flow.request_update import FinishReason
from legato.flow.scheduled_batch import PENDING
from legato.flow.step_output import RequestStep, StepOutput

PROMPT = tuple(range(10))


def test_a_pending_token_is_decoded_unseen():
    engine = SimulatedEngine(overlap=True)
    engine.add(request("a", (1, 2, 3), max_tokens=3))
    first, second = engine.step().requests[0], engine.step().requests[0]
    assert (first.token_ids, first.num_output_tokens) == ((1, 2, 3), 0)
    assert (second.token_ids, second.num_computed_tokens, second.num_output_tokens) == ((PENDING,), 3, 1)
    assert second.is_decode
    assert second.samples
    engine.run()
    engine.check_at_rest()


def test_chunks_of_a_prompt_follow_one_another_without_a_commit():
    engine = SimulatedEngine(overlap=True, max_num_batched_tokens=4)
    engine.add(request("a", PROMPT, max_tokens=2))
    steps = [batch.requests[0] for batch in engine.run()]
    assert [(step.num_computed_tokens, step.query_len, step.samples) for step in steps] == [
        (0, 4, False),
        (4, 4, False),
        (8, 2, True),
        (10, 1, True),
    ]
    engine.check_at_rest()


@pytest.mark.parametrize("options", [{"max_tokens": 1}, {"max_tokens": 99}], ids=["max_tokens", "the model's length"])
def test_an_end_that_is_known_is_not_run_past(options):
    engine = SimulatedEngine(overlap=True, max_model_len=11)
    engine.add(request("a", PROMPT, **options))
    assert engine.step() is not None
    assert engine.step() is None
    assert engine.finish_reason("a") is FinishReason.LENGTH
    engine.check_at_rest()


def test_a_stop_token_frees_blocks_at_the_commit_and_what_ran_past_it_is_passed_over():
    engine = SimulatedEngine(overlap=True)
    stop = output_alone(request("a", PROMPT, max_tokens=1), 64)[0]
    engine.add(request("a", PROMPT, max_tokens=9, stop_token_ids=frozenset({stop})))
    engine.step()
    assert engine.step() is not None, "nothing ran past the end"
    assert engine.finish_reason("a") is FinishReason.STOP
    assert engine.scheduler.stats().kv_blocks_used == 0
    engine.commit()
    assert engine.output("a") == (stop,)
    engine.check_at_rest()


def test_the_row_of_a_request_that_ran_past_its_end_goes_to_the_next_one():
    engine = SimulatedEngine(overlap=True, max_num_seqs=1)
    engine.add(*(request(name, PROMPT, max_tokens=9, stop_token_ids=frozenset(range(13))) for name in "abc"))
    rows = [admission.row for batch in engine.run() for admission in batch.admissions]
    assert rows == [0, 0, 0]
    engine.check_at_rest()


def test_an_aborted_request_is_passed_over_in_both_steps_in_flight_even_when_its_id_comes_back():
    engine = SimulatedEngine(overlap=True)
    engine.add(request("a", PROMPT, max_tokens=9))
    engine.step()
    engine.step(abort_in_between=["a"])
    assert engine.scheduler.stats().kv_blocks_used == 0
    engine.add(request("a", PROMPT[:3], max_tokens=2))
    engine.run()
    engine.check_at_rest()


def test_blocks_are_shared_only_when_the_step_that_computes_them_is_committed():
    engine = SimulatedEngine(overlap=True, block_size=4)
    engine.add(request("a", PROMPT, max_tokens=9))
    engine.step()
    engine.add(request("early", PROMPT))
    assert [admission.num_computed_tokens for admission in engine.step().admissions] == [0]
    engine.add(request("late", PROMPT))
    assert [admission.num_computed_tokens for admission in engine.step().admissions] == [8]
    engine.run()
    engine.check_at_rest()


def test_a_chunk_in_flight_is_not_shared_yet():
    engine = SimulatedEngine(overlap=True, block_size=4, max_num_batched_tokens=8)
    engine.add(request("a", tuple(range(20)), max_tokens=2))
    engine.step()
    engine.step()
    engine.add(request("b", tuple(range(20)), max_tokens=2))
    assert [(r.request_id, r.query_len) for r in engine.step().requests] == [("a", 4), ("b", 4)]
    assert [admission.num_computed_tokens for batch in engine.run() for admission in batch.admissions] == []
    engine.check_at_rest()
    assert engine.updates["b"][0].num_cached_tokens == 8, "the first chunk was committed, the second was not"


def test_generated_tokens_are_shared_like_those_of_the_plain_loop():
    cached = []
    for overlap in (False, True):
        engine = SimulatedEngine(overlap=overlap, block_size=4)
        engine.add(request("a", PROMPT, max_tokens=11))
        engine.run()
        engine.add(request("b", PROMPT + engine.output("a")))
        engine.run()
        engine.check_at_rest()
        cached.append(engine.updates["b"][0].num_cached_tokens)
    assert cached == [20, 20]


def test_a_preempted_request_keeps_the_token_that_was_on_its_way():
    engine = SimulatedEngine(overlap=True, block_size=4, num_blocks=9, prefix_caching=False)
    engine.add(request("old", PROMPT, max_tokens=20), request("young", tuple(range(5, 15)), max_tokens=20))
    batches = engine.run()
    fed = [scheduled for batch in batches for scheduled in batch.requests if scheduled.request_id == "young"]
    again = next(place for place, scheduled in enumerate(fed) if place > 0 and scheduled.num_computed_tokens == 0)
    assert fed[again].num_output_tokens == fed[again - 1].num_output_tokens + 1
    engine.check_at_rest()


def test_a_decode_without_a_block_waits_for_one_that_is_about_to_come_free():
    """The same load preempts where the requests end one token later."""
    preemptions = []
    for max_tokens in (2, 3):
        engine = SimulatedEngine(overlap=True, block_size=2, num_blocks=7, max_model_len=12)
        engine.add(
            request("ends", (1, 2, 3, 4), max_tokens=max_tokens), request("grows", (5, 6, 7, 8, 9), max_tokens=5)
        )
        engine.run()
        engine.check_at_rest()
        preemptions.append(engine.scheduler.stats().preemptions)
    assert preemptions == [0, 1]


def test_a_third_step_is_not_formed_before_the_first_is_committed():
    scheduler = SimulatedEngine().scheduler
    scheduler.add(request("a", PROMPT, max_tokens=9))
    first, second = scheduler.schedule(), scheduler.schedule()
    with pytest.raises(AssertionError, match="committed"):
        scheduler.schedule()
    step = RequestStep(request_id="a", token_ids=(1,))
    with pytest.raises(AssertionError, match="out of order"):
        scheduler.commit(second, StepOutput(step=second.step, requests=(step,)))
    assert first.step == 1
