"""``--speculative-config``: what people type is taken or refused with both sides named."""

import json

import pytest
import tiny_engine

from legato.config.speculative import RejectionMethod
from legato.engine.resolve import resolve
from legato.engine.speculative_options import speculative_request
from legato.errors import ConfigError, GraphPolicyError


def typed(**settings: object) -> str:
    return json.dumps({"method": "ngram", "num_speculative_tokens": 4, **settings})


def test_nothing_typed_is_no_speculation() -> None:
    assert speculative_request(None) is None


def test_keys_are_taken_as_people_type_them() -> None:
    got = speculative_request(typed(prompt_lookup_max=5, prompt_lookup_min=2, draft_tensor_parallel_size=1))
    assert (got.method, got.num_speculative_tokens, got.width) == ("ngram", 4, 5)
    assert (got.prompt_lookup_min, got.prompt_lookup_max) == (2, 5)
    assert (got.rejection_method, got.acceptance_rates) == (RejectionMethod.EXACT, ())


def test_null_is_as_if_the_key_were_absent() -> None:
    assert speculative_request(typed(model=None, prompt_lookup_max=None)) == speculative_request(typed())


def test_a_synthetic_length_gives_equal_rates() -> None:
    got = speculative_request(typed(rejection_sample_method="synthetic", synthetic_acceptance_length=3))
    assert got.rejection_method is RejectionMethod.SYNTHETIC
    assert len(set(got.acceptance_rates)) == 1
    rate = got.acceptance_rates[0]
    assert sum(rate**power for power in range(5)) == pytest.approx(3)


def test_synthetic_rates_of_positions_become_conditional() -> None:
    rates = [0.8, 0.4, 0.4, 0.0]
    got = speculative_request(typed(rejection_sample_method="synthetic", synthetic_acceptance_rates=rates))
    assert got.acceptance_rates == pytest.approx((0.8, 0.5, 1.0, 0.0))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        (typed(method="medusa"), "medusa"),
        (json.dumps({"num_speculative_tokens": 2}), "no method"),
        (json.dumps({"method": "ngram"}), "num_speculative_tokens"),
        (typed(num_speculative_tokens=0), "1 to 15"),
        (typed(num_speculative_tokens=16), "16"),
        (typed(num_speculative_tokens=True), "num_speculative_tokens"),
        (typed(num_speculative_tokens=2.0), "2.0"),
        (typed(num_spec_tokens=3), "num_spec_tokens"),
        (typed(draft_tensor_parallel_size=2), "one device"),
        (typed(prompt_lookup_min=5, prompt_lookup_max=3), "prompt_lookup_min"),
        (typed(prompt_lookup_max=0), "prompt_lookup_max"),
        (typed(model=3), "model"),
        (typed(rejection_sample_method="typical"), "standard | synthetic"),
        (typed(synthetic_acceptance_length=2.0), "synthetic"),
        (typed(rejection_sample_method="synthetic"), "neither"),
        (typed(rejection_sample_method="synthetic", synthetic_acceptance_length=5.5), "1 to 5"),
        (typed(rejection_sample_method="synthetic", synthetic_acceptance_length=0.5), "1 to 5"),
        (typed(rejection_sample_method="synthetic", synthetic_acceptance_rates=[0.5]), "4 shares"),
        (typed(rejection_sample_method="synthetic", synthetic_acceptance_rates=[0.5, 0.6, 0.1, 0]), "0.6"),
        (
            typed(
                rejection_sample_method="synthetic",
                synthetic_acceptance_length=2,
                synthetic_acceptance_rates=[0.5, 0.4, 0.1, 0],
            ),
            "both",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_and_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        speculative_request(text)
    assert named in str(caught.value)


def test_an_unknown_method_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        speculative_request(typed(method="medusa"))
    assert "ngram" in caught.value.details["options"]


def test_a_budget_without_room_for_drafts_is_refused_with_both_ways_out(tmp_path) -> None:
    folder = tiny_engine.write_config(tmp_path)
    with pytest.raises(ConfigError) as caught:
        resolve(tiny_engine.options(folder, max_num_batched_tokens=19, speculative_config=typed()))
    assert caught.value.details["options"] == "--max-num-batched-tokens 20 | --max-num-seqs 3"
    resolve(tiny_engine.options(folder, max_num_batched_tokens=20, speculative_config=typed()))


@pytest.mark.parametrize("num_drafts", range(1, 16))
def test_verification_of_as_many_requests_as_run_is_captured_for_every_width(tmp_path, num_drafts: int) -> None:
    folder = tiny_engine.write_config(tmp_path)
    options = tiny_engine.options(
        folder,
        speculative_config=typed(num_speculative_tokens=num_drafts),
        max_num_batched_tokens=None,
        max_num_seqs=256,
        kv_cache_memory_bytes=None,
    )
    catalog = resolve(options).catalog
    for stage in ("round", "target"):
        largest = max(key.num_tokens for key in catalog.keys if key.stage == stage and key.query_len == 1 + num_drafts)
        assert largest == 256 * (1 + num_drafts)
    assert max(key.num_tokens for key in catalog.keys if key.stage == "draft") == 256


def test_strict_mode_refuses_a_backend_that_cannot_verify_in_full_graphs(tmp_path, monkeypatch) -> None:
    from legato.attention.graph_support import GraphSupport, Support
    from legato.attention.registry import BACKENDS

    planted = __import__("planted_faults")
    monkeypatch.setitem(BACKENDS, "uniform_only", "planted_faults:UniformOnlyBackend")
    single = Support(level=GraphSupport.UNIFORM_SINGLE_TOKEN, reason="one token alone")
    monkeypatch.setattr(planted.UniformOnlyBackend, "support", classmethod(lambda cls, setup, spec: single))
    folder = tiny_engine.write_config(tmp_path)
    options = {
        "attention_backend": "uniform_only",
        "graph_policy": "full_and_piecewise",
        "speculative_config": typed(),
        "max_num_seqs": 2,
    }
    with pytest.raises(GraphPolicyError) as caught:
        resolve(tiny_engine.options(folder, graph_strict=True, **options))
    assert "query_len 5" in str(caught.value)
    lowered = resolve(tiny_engine.options(folder, **options))
    assert {str(mode) for mode in lowered.catalog.policy.uniform.values()} == {"piecewise"}
    assert [str(each) for each in lowered.config.decisions if "query_len 5" in each.subject]
    assert str(lowered.catalog.policy.drafts) == "full", "its drafts are of one token each, or attend to nothing"


def test_auto_chooses_up_to_five_drafts_or_as_many_as_are_said() -> None:
    got = speculative_request(typed(num_speculative_tokens="auto"))
    assert (got.num_speculative_tokens, got.chosen_per_step) == (5, True)
    assert got.numbers_of_drafts == (0, 1, 2, 3, 4, 5)
    most = speculative_request(typed(num_speculative_tokens="auto", max_num_speculative_tokens=15))
    assert most.numbers_of_drafts[-1] == 15 and most.width == 16


def test_a_fixed_number_has_no_bound() -> None:
    assert speculative_request(typed()).numbers_of_drafts == (4,)
    with pytest.raises(ConfigError, match="there is none"):
        speculative_request(typed(max_num_speculative_tokens=3))


def test_auto_has_synthetic_acceptance_of_the_most_drafts() -> None:
    settings = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5}
    got = speculative_request(typed(num_speculative_tokens="auto", **settings))
    assert len(got.acceptance_rates) == 5
    assert got.synthetic_length == pytest.approx(4.5)
