"""How an output ends, and what its request is told."""

from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.flow.request_update import FinishReason
from legato.flow.step_output import RequestStep, StepOutput, TokenLogprobs


def run_with_tokens(req, tokens, **engine_options):
    """Run one request on given tokens in place of the simulated model's."""
    scheduler = SimulatedEngine(**engine_options).scheduler
    scheduler.add(req)
    updates = []
    for token_id in tokens:
        batch = scheduler.schedule()
        step = RequestStep(request_id=req.request_id, token_ids=(token_id,))
        updates += scheduler.commit(batch, StepOutput(step=batch.step, requests=(step,)))
        if not scheduler.has_work:
            break
    return updates


def test_a_stop_token_of_the_user_ends_the_output_and_is_named():
    req = request("a", (1, 2), max_tokens=9, stop_token_ids=frozenset({5, 6}), user_stop_token_ids=(5,))
    updates = run_with_tokens(req, [3, 5, 4])
    assert [u.token_ids for u in updates] == [(3,), (5,)]
    assert (updates[-1].finish_reason, updates[-1].stop_reason) == (FinishReason.STOP, 5)


def test_an_end_token_of_the_model_ends_the_output_without_a_stop_reason():
    req = request("a", (1, 2), max_tokens=9, stop_token_ids=frozenset({5, 6}), user_stop_token_ids=(5,))
    last = run_with_tokens(req, [6])[-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, None)


def test_no_stop_token_counts_before_min_tokens():
    req = request("a", (1, 2), max_tokens=9, min_tokens=2, stop_token_ids=frozenset({5}))
    assert len(run_with_tokens(req, [5, 5, 5, 5])) == 3


def test_a_stop_token_in_the_last_place_is_a_stop_and_not_a_length():
    req = request("a", (1, 2), max_tokens=2, stop_token_ids=frozenset({5}))
    assert run_with_tokens(req, [3, 5])[-1].finish_reason is FinishReason.STOP


def test_max_tokens_ends_the_output_by_length():
    updates = run_with_tokens(request("a", (1, 2), max_tokens=2), [3, 3, 3])
    assert [u.finish_reason for u in updates] == [None, FinishReason.LENGTH]


def test_the_models_length_ends_the_output_by_length():
    updates = run_with_tokens(request("a", (1, 2), max_tokens=99), [3] * 9, max_model_len=6)
    assert len(updates) == 4
    assert updates[-1].finish_reason is FinishReason.LENGTH


def test_tokens_after_the_last_are_dropped_with_their_logprobs():
    scheduler = SimulatedEngine().scheduler
    scheduler.add(request("a", (1, 2), max_tokens=2))
    batch = scheduler.schedule()
    logprobs = tuple(
        TokenLogprobs(token_id=token_id, logprob=-1.0, rank=1, top_ids=(), top_logprobs=()) for token_id in (3, 4, 5)
    )
    step = RequestStep(request_id="a", token_ids=(3, 4, 5), logprobs=logprobs)
    (update,) = scheduler.commit(batch, StepOutput(step=batch.step, requests=(step,)))
    assert (update.token_ids, update.finish_reason) == ((3, 4), FinishReason.LENGTH)
    assert update.logprobs == logprobs[:2]
    assert scheduler.stats().generation_tokens == 2


def test_a_chunk_that_yields_nothing_tells_nothing():
    engine = SimulatedEngine(max_num_batched_tokens=4)
    engine.add(request("a", tuple(range(10)), max_tokens=1))
    engine.step()
    engine.step()
    assert engine.updates["a"] == []
    engine.run()
    assert engine.output("a") == output_alone(engine.requests["a"], 64)


def test_prompt_logprobs_need_every_prompt_token_computed_and_come_once():
    engine = SimulatedEngine(max_num_batched_tokens=5)
    prompt = tuple(range(12))
    engine.add(request("warm", prompt))
    engine.run()
    engine.add(request("asks", prompt, prompt_logprobs=1), request("does-not", prompt))
    admissions = {a.request.request_id: a for batch in engine.run() for a in batch.admissions}
    assert admissions["asks"].num_computed_tokens == 0
    assert admissions["does-not"].num_computed_tokens == 8
    engine.check_at_rest()


def test_prompt_logprobs_delivered_before_a_preemption_are_not_delivered_again():
    engine = SimulatedEngine(block_size=2, num_blocks=14, max_num_batched_tokens=4, policy="priority")
    engine.add(request("urgent", (1, 2, 3), max_tokens=20, priority=0))
    engine.step()
    engine.add(request("asks", tuple(range(18)), max_tokens=2, prompt_logprobs=1, priority=1))
    chunks = [r for batch in engine.run() for r in batch.requests if r.request_id == "asks"]
    assert [r.num_computed_tokens for r in chunks].count(0) > 1, "the prompt was not computed twice"
    assert engine.updates["asks"][0].token_ids == ()
    engine.check_at_rest()


def test_a_request_whose_prompt_logprobs_are_delivered_reuses_its_blocks_after_a_preemption():
    engine = SimulatedEngine(block_size=4, num_blocks=12)
    engine.add(request("old", tuple(range(16)), max_tokens=20))
    engine.add(request("asks", tuple(range(5, 21)), max_tokens=20, prompt_logprobs=1))
    again = [a for batch in engine.run() for a in batch.admissions if a.output_token_ids]
    assert {a.request.request_id for a in again} == {"asks"}
    assert any(a.num_computed_tokens > 0 for a in again)
    engine.check_at_rest()
