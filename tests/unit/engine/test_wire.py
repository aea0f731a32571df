import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato import errors
from legato.config.options import EngineOptions
from legato.engine import wire
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.sampling_params import SamplingParams
from legato.flow.step_output import TokenLogprobs
from legato.observability.reasons import Reason
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats

TOKENS = st.lists(st.integers(0, 10**6), max_size=5).map(tuple)


@given(tokens=TOKENS, temperature=st.floats(0, 100), seed=st.integers(-(2**63), 2**63 - 1), stop=st.text(min_size=1))
def test_a_request_arrives_as_it_was_sent(tokens, temperature, seed, stop):
    params = SamplingParams(
        temperature=temperature,
        seed=seed,
        stop=(stop,),
        logit_bias=((3, 1.5),),
        bad_words_token_ids=(tokens,),
        max_tokens=None,
    )
    request = Request(
        request_id="a",
        prompt_token_ids=tokens,
        params=params,
        seed=seed,
        stop_token_ids=frozenset(tokens),
        max_tokens=5,
        arrival=1.25,
        group="g",
    )
    add = wire.Add((request,))
    assert wire.decode_command(wire.encode(add)) == add


@given(
    tokens=TOKENS,
    logprob=st.floats(max_value=0, allow_nan=False),
    finish=st.sampled_from([None, *FinishReason]),
    stop=st.none() | st.integers(0, 9) | st.text(),
)
def test_an_update_arrives_as_it_was_sent(tokens, logprob, finish, stop):
    position = TokenLogprobs(token_id=1, logprob=logprob, rank=2, top_ids=tokens, top_logprobs=(logprob,) * len(tokens))
    update = RequestUpdate(
        request_id="a", token_ids=tokens, logprobs=(position,), finish_reason=finish, stop_reason=stop
    )
    event = wire.Updates((update,))
    assert wire.decode_event(wire.encode(event)) == event


def test_stats_records_and_options_arrive_as_they_were_sent():
    record = StepRecord(
        step=1,
        stage="target",
        requested="full",
        mode="eager",
        reason=Reason.BATCH_TOO_LARGE,
        key=None,
        num_reqs=1,
        num_tokens=2,
        num_tokens_padded=2,
        host_us=3.5,
        device_us=None,
    )
    for event in (
        wire.StatsReply(1, EngineStats(graph_steps={"target full": 3})),
        wire.StepsReply(2, (record,)),
        wire.GraphsReply(3, {"policy": "full", "catalog": [{"bytes": None}]}),
    ):
        assert wire.decode_event(wire.encode(event)) == event
    start = wire.Start("module:build", EngineOptions(graph_sizes=(1, 2, 4)))
    assert wire.decode_command(wire.encode(start)) == start


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestError("no", {"limit": 5}, param="prompt"),
        errors.QueueFullError("full"),
        errors.WeightsError("missing", {"file": "a.safetensors", "found": "nothing"}),
        errors.GraphPolicyError("strict", {}),
    ],
)
def test_an_error_arrives_as_the_class_it_was_with_its_text(error):
    arrived = wire.ErrorReport.of(error).to_error()
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert getattr(arrived, "param", None) == getattr(error, "param", None)


def test_an_error_that_is_not_legatos_arrives_as_the_death_of_the_engine():
    arrived = wire.ErrorReport.of(ZeroDivisionError("by zero")).to_error()
    assert type(arrived) is errors.EngineDeadError
    assert "ZeroDivisionError: by zero" in str(arrived)


def test_a_field_of_the_wrong_type_is_not_decoded():
    data = msgspec.msgpack.encode({"type": "Abort", "request_ids": [5]})
    with pytest.raises(msgspec.ValidationError):
        wire.decode_command(data)
