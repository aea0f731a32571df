"""Decodes that bring several tokens: bounds while drafts are not judged, and what a run that ends an output leaves."""

import pytest
from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.flow.request_update import FinishReason


def engine(**changes: object) -> SimulatedEngine:
    return SimulatedEngine(**({"num_drafts": 3, "max_num_batched_tokens": 32} | changes))


@pytest.mark.parametrize("overlap", [False, True])
def test_runs_bring_the_tokens_in_fewer_steps(overlap: bool) -> None:
    drafted, plain = engine(overlap=overlap), engine(num_drafts=None, overlap=overlap)
    for each in (drafted, plain):
        each.add(request("a", (1, 2, 3), max_tokens=30), request("b", (2, 2), max_tokens=30))
    assert len(drafted.run()) < 0.7 * len(plain.run())
    for each in (drafted, plain):
        each.check_at_rest()


@pytest.mark.parametrize("overlap", [False, True])
def test_stop_tokens_and_lengths_cut_a_run(overlap: bool) -> None:
    for max_tokens in range(1, 12):
        for stop in range(13):
            one = engine(overlap=overlap)
            asked = request("a", (5, 1), max_tokens=max_tokens, stop_token_ids=frozenset({stop}))
            one.add(asked)
            one.run()
            one.check_at_rest()
            expected = output_alone(asked, 64)
            assert one.finish_reason("a") is (FinishReason.STOP if expected[-1] == stop else FinishReason.LENGTH)


def test_every_decode_is_fed_as_many_tokens_and_counted_in_the_budget() -> None:
    one = engine(max_num_seqs=4, max_num_batched_tokens=16)
    one.add(*[request(f"r{index}", (index, 1), max_tokens=9) for index in range(4)], request("late", (9,) * 30))
    batches = one.run()
    decodes = [each for batch in batches for each in batch.requests if each.is_decode]
    assert {each.query_len for each in decodes} == {4}
    assert max(batch.num_tokens for batch in batches) == 16
    one.check_at_rest()


def test_a_step_behind_an_unjudged_one_is_formed_with_bounds() -> None:
    one = engine(overlap=True)
    one.add(request("a", (1, 2, 3), max_tokens=20))
    prompt, first, second = (one.step() for _ in range(3))
    assert prompt.requests[0].num_computed_tokens == 0
    assert first.requests[0].num_computed_tokens == 3
    assert second.requests[0].num_computed_tokens == 3 + 4  # all drafts may stand
    assert second.requests[0].num_output_tokens == 2  # none may
    one.run()
    one.check_at_rest()


def test_the_prefix_cache_is_told_of_tokens_that_stand_alone() -> None:
    one = engine(block_size=2)
    one.add(request("a", (1, 2, 3), max_tokens=25))
    one.run()
    whole = (1, 2, 3, *one.output("a"))
    for length in range(2, len(whole)):
        one.add(request(f"again {length}", whole[:length], max_tokens=3))
        one.run()  # the device refuses to read what did not stand
    assert one.scheduler.stats().prefix_cache_hits > 100
    one.check_at_rest()


def test_acceptance_is_counted_by_position() -> None:
    one = engine()
    one.add(request("a", (4, 2), max_tokens=40))
    one.run()
    stats = one.scheduler.stats()
    assert stats.spec_decode_draft_tokens == 3 * stats.spec_decode_drafts > 0
    assert stats.spec_decode_accepted_tokens == one.device.num_accepted == sum(stats.spec_decode_accepted_per_position)
    first, second, third = stats.spec_decode_accepted_per_position
    assert stats.spec_decode_drafts >= first >= second >= third > 0


def test_drafts_of_a_request_that_counts_every_token_never_stand() -> None:
    one = engine()
    one.add(request("a", (4, 2), max_tokens=20, min_tokens=20, stop_token_ids=frozenset({40})))
    batches = one.run()
    assert [each.num_drafts for batch in batches for each in batch.requests] == [0] * 20
    assert one.scheduler.stats().spec_decode_drafts == 0
    one.check_at_rest()
