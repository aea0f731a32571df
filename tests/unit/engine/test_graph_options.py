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
        assert graph_request(EngineOptions(), defaults).policy is defaults.graph_policy


@pytest.mark.parametrize("policy", GraphPolicy)
def test_a_policy_is_read_by_its_name_in_either_spelling(policy: GraphPolicy) -> None:
    for name in (policy.name, str(policy), policy.name.title()):
        assert ask(graph_policy=name).policy is ask({"cudagraph_mode": name}).policy is policy
    assert ask(graph_policy=str(policy)).decisions == ()


def test_enforce_eager_means_no_graphs() -> None:
    assert ask(enforce_eager=True).policy is GraphPolicy.NONE


@pytest.mark.parametrize(
    ("foreign", "policy"),
    [
        ({"full_cuda_graph": True}, GraphPolicy.FULL),
        ({"full_cuda_graph": True, "separate_attention_routine": True}, GraphPolicy.FULL_AND_PIECEWISE),
        ({"full_cuda_graph": True, "separate_attention_routine": False}, GraphPolicy.FULL),
        ({"full_cuda_graph": False}, GraphPolicy.PIECEWISE),
        ({"separate_attention_routine": True}, CPU.graph_policy),
        ({"cudagraph_mode": "piecewise", "full_cuda_graph": True}, GraphPolicy.PIECEWISE),
        ({"optimization_level": 0}, GraphPolicy.NONE),
        ({"optimization_level": 1}, GraphPolicy.PIECEWISE),
        ({"optimization_level": 2}, GraphPolicy.FULL_AND_PIECEWISE),
        ({"optimization_level": 3}, GraphPolicy.FULL_AND_PIECEWISE),
        ({"optimization_level": 0, "cudagraph_mode": "FULL"}, GraphPolicy.FULL),
        ({}, CPU.graph_policy),
        ({"cudagraph_mode": None, "cudagraph_capture_sizes": None, "full_cuda_graph": None}, CPU.graph_policy),
    ],
)
def test_the_older_settings_are_read_too(foreign: dict[str, object], policy: GraphPolicy) -> None:
    assert ask(foreign).policy is policy


def written(got: GraphRequest) -> list[str]:
    """The decisions as they are printed at start-up."""
    return [str(decision) for decision in got.decisions]


@pytest.mark.parametrize(
    ("foreign", "decision"),
    [
        (
            {"cudagraph_mode": "FULL_AND_PIECEWISE"},
            "graph policy: cudagraph_mode FULL_AND_PIECEWISE -> full_and_piecewise "
            "(piecewise for mixed batches, full for uniform ones)",
        ),
        (
            {"full_cuda_graph": True, "separate_attention_routine": True},
            "graph policy: full_cuda_graph with separate_attention_routine -> full_and_piecewise "
            "(piecewise for mixed batches, full for uniform ones)",
        ),
        (
            {"full_cuda_graph": True},
            "graph policy: full_cuda_graph -> full (full for mixed batches, full for uniform ones)",
        ),
        (
            {"optimization_level": 0},
            "graph policy: optimization_level 0 -> none (eager for mixed batches, eager for uniform ones)",
        ),
        (
            {"cudagraph_capture_sizes": [8, 1]},
            "graph sizes: cudagraph_capture_sizes -> [8, 1] (tokens of a step)",
        ),
        (
            {"max_cudagraph_capture_size": 20},
            "graph sizes: max_cudagraph_capture_size 20 -> 7 sizes up to 20 (larger steps run without a graph)",
        ),
    ],
)
def test_each_foreign_setting_is_printed_with_its_meaning_in_our_words(
    foreign: dict[str, object], decision: str
) -> None:
    assert decision in written(ask(foreign))


@pytest.mark.parametrize(
    ("foreign", "options", "ignored"),
    [
        ({"cudagraph_mode": "FULL", "full_cuda_graph": False}, {}, "full_cuda_graph false"),
        ({"cudagraph_mode": "FULL", "optimization_level": 1}, {}, "optimization_level 1"),
        ({"separate_attention_routine": True}, {}, "separate_attention_routine"),
        ({"cudagraph_capture_sizes": [1], "max_cudagraph_capture_size": 4}, {}, "max_cudagraph_capture_size"),
    ],
)
def test_a_setting_that_another_one_overrides_is_said_to_have_no_effect(
    foreign: dict[str, object], options: dict[str, object], ignored: str
) -> None:
    found = [decision for decision in ask(foreign, **options).decisions if decision.given == "no effect"]
    assert [decision.requested for decision in found] == [ignored]


def test_our_own_sizes_come_before_foreign_ones_and_say_so() -> None:
    assert "--graph-sizes comes first" in written(ask({"cudagraph_capture_sizes": [4]}, graph_sizes=(1,)))[-1]


def test_an_unknown_policy_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="no such graph policy") as caught:
        ask(graph_policy="fastest")
    assert caught.value.details["options"] == "none | piecewise | full | full_decode_only | full_and_piecewise"


def test_settings_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        graph_request(EngineOptions(compilation_config={"cudagraph_mode": "FULL"}), CPU)


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
        '{"optimization_level": 4}',
        '{"optimization_level": true}',
        '{"max_cudagraph_capture_size": 0}',
        '{"max_cudagraph_capture_size": "8"}',
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
