"""Arguments as users of other engines type them."""

import json

import pytest

from legato.cli.spellings import written_out
from legato.errors import ConfigError


def settings(*arguments: str) -> object:
    """What ``-cc`` is given, as values."""
    *others, name, text = written_out(["generate", *arguments, "a prompt"])
    assert (others, name) == (["generate", "a prompt"], "--compilation-config")
    return json.loads(text)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["-cc.cudagraph_mode=FULL"], {"cudagraph_mode": "FULL"}),
        (["-cc.cudagraph_mode", "FULL"], {"cudagraph_mode": "FULL"}),
        (["--compilation-config.cudagraph_mode=PIECEWISE"], {"cudagraph_mode": "PIECEWISE"}),
        (["--compilation_config.full_cuda_graph=true"], {"full_cuda_graph": True}),
        (
            ["-cc.cudagraph_capture_sizes=[1, 2]", "-cc.cudagraph_mode=null"],
            {"cudagraph_capture_sizes": [1, 2], "cudagraph_mode": None},
        ),
        (["-O0"], {"optimization_level": 0}),
        (["-O3", "-cc.cudagraph_mode=FULL"], {"optimization_level": 3, "cudagraph_mode": "FULL"}),
    ],
)
def test_settings_one_by_one_are_collected(arguments: list[str], value: object) -> None:
    assert settings(*arguments) == value


@pytest.mark.parametrize("other", [["-cc", "{}"], ["--compilation-config={}"], ["--compilation_config", "{}"]])
def test_settings_in_two_forms_are_refused(other: list[str]) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        written_out(["-O1", *other])


def test_underscores_in_names_are_dashes_and_values_stay() -> None:
    given = ["--max_model_len=5", "--model", "a_b", "--x_y=c_d", "-O4", "a -O1 prompt"]
    assert written_out(given) == ["--max-model-len=5", "--model", "a_b", "--x-y=c_d", "-O4", "a -O1 prompt"]


def test_behind_two_dashes_everything_is_a_prompt() -> None:
    assert written_out(["-O1", "--", "-O2", "--a_b"]) == [
        *("--compilation-config", '{"optimization_level": 1}'),
        *("--", "-O2", "--a_b"),
    ]
