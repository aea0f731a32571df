import json

import pytest

from legato.config.options import EngineOptions
from legato.engine.defaults import DEFAULTS
from legato.engine.graph_options import GraphRequest, graph_request
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy

CPU = DEFAULTS["cpu"]


def ask(foreign: object = None, **options: object) -> GraphRequest:
    text = foreign if foreign is None or isinstance(foreign, str) else json.dumps(foreign)
    return graph_request(EngineOptions(compilation_config=text, **options), CPU)


def test_without_options_the_devices_default_is_given_as_a_decision() -> None:
    got = ask()
    assert got.policy is CPU.graph_policy
    assert got.sizes is None
    (decision,) = got.decisions
    assert (decision.requested, decision.given) == ("default", str(CPU.graph_policy))
    assert decision.reason == CPU.policy_reason


def test_each_device_has_defaults_with_a_reason() -> None:
    for defaults in DEFAULTS.values():
        assert defaults.policy_reason
        assert None in defaults.samplers, "a graph that ends with the logits serves every sampler"
        assert graph_request(EngineOptions(), defaults).policy is defaults.graph_policy


@pytest.mark.parametrize("policy", GraphPolicy)
def test_a_policy_is_read_by_its_name_in_either_spelling(policy: GraphPolicy) -> None:
    assert ask(graph_policy=str(policy)) == ask({"cudagraph_mode": policy.name})
    assert ask(graph_policy=str(policy)).policy is policy
    assert ask(graph_policy=str(policy)).decisions == ()


def test_enforce_eager_means_no_graphs() -> None:
    assert ask(enforce_eager=True).policy is GraphPolicy.NONE


@pytest.mark.parametrize(
    ("foreign", "policy"),
    [
        ({"full_cuda_graph": True}, GraphPolicy.FULL),
        ({"full_cuda_graph": True, "separate_attention_routine": True}, GraphPolicy.FULL_AND_PIECEWISE),
        ({"full_cuda_graph": True, "separate_attention_routine": False}, GraphPolicy.FULL),
        ({"full_cuda_graph": False}, CPU.graph_policy),
        ({"separate_attention_routine": True}, CPU.graph_policy),
        ({"cudagraph_mode": "piecewise", "full_cuda_graph": True}, GraphPolicy.PIECEWISE),
        ({}, CPU.graph_policy),
        ({"cudagraph_mode": None, "cudagraph_capture_sizes": None, "full_cuda_graph": None}, CPU.graph_policy),
    ],
)
def test_the_older_settings_are_read_too(foreign: dict[str, object], policy: GraphPolicy) -> None:
    assert ask(foreign).policy is policy


def test_sizes_are_sorted_and_distinct() -> None:
    assert ask(graph_sizes=(8, 1, 8)).sizes == (1, 8)
    assert ask({"cudagraph_capture_sizes": [4, 2]}).sizes == (2, 4)
    assert ask({"cudagraph_capture_sizes": [4, 2]}, graph_sizes=(1,)).sizes == (1,), "ours come first"


def test_options_that_mean_the_same_do_not_contradict() -> None:
    assert ask({"cudagraph_mode": "NONE"}, enforce_eager=True, graph_policy="none").policy is GraphPolicy.NONE


@pytest.mark.parametrize(
    ("foreign", "options"),
    [
        (None, {"enforce_eager": True, "graph_policy": "full"}),
        ({"cudagraph_mode": "FULL"}, {"graph_policy": "piecewise"}),
        ({"full_cuda_graph": True}, {"enforce_eager": True}),
    ],
)
def test_a_contradiction_is_refused_and_names_what_each_option_means(
    foreign: object, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="contradict") as caught:
        ask(foreign, **options)
    assert len(caught.value.details) == 3


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '"FULL"',
        '{"cudagraph_mod": "FULL"}',
        '{"cudagraph_mode": "SOME"}',
        '{"cudagraph_mode": 3}',
        '{"cudagraph_capture_sizes": []}',
        '{"cudagraph_capture_sizes": [0]}',
        '{"cudagraph_capture_sizes": [1.5]}',
        '{"cudagraph_capture_sizes": ["8"]}',
        '{"cudagraph_capture_sizes": 8}',
        '{"cudagraph_capture_sizes": "8"}',
        '{"cudagraph_capture_sizes": {"1": 2}}',
        '{"cudagraph_capture_sizes": [true]}',
        '{"full_cuda_graph": "no"}',
        '{"separate_attention_routine": 1, "full_cuda_graph": true}',
    ],
)
def test_what_cannot_be_read_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(text)
    assert caught.value.details


def test_an_error_in_a_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="cudagraph_capture_sizes"):
        ask({"cudagraph_sizes": [1]})
    with pytest.raises(ConfigError, match="FULL_AND_PIECEWISE"):
        ask({"cudagraph_mode": "ALL"})
