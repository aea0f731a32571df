"""Other spellings of arguments. Owns their translation into ours, before anything is parsed.

``--max_model_len`` is ``--max-model-len``; ``-cc.cudagraph_mode=FULL`` and ``-O2`` are settings of ``-cc``, as vLLM
writes them.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from legato.errors import ConfigError

_SETTING = re.compile(r"(?:-cc|--compilation[-_]config)\.(\w+)(?:=(.*))?", re.DOTALL)
_LEVEL = re.compile(r"-O([0-3])")


def written_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in our spelling. Raises ConfigError for settings given both one by one and as JSON."""
    settings: dict[str, Any] = {}
    result: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            return [*result, *_option(settings, result), argument, *left]
        if found := _SETTING.fullmatch(argument):
            settings[found[1]] = _value(found[2] if found[2] is not None else next(left, ""))
        elif found := _LEVEL.fullmatch(argument):
            settings["optimization_level"] = int(found[1])
        else:
            result.append(_with_dashes(argument))
    return [*result, *_option(settings, result)]


def _option(settings: dict[str, Any], others: Sequence[str]) -> list[str]:
    if not settings:
        return []
    text = json.dumps(settings)
    if any(other.partition("=")[0] in ("-cc", "--compilation-config") for other in others):
        details = {"requested": f"-cc and {text}", "options": "all settings in one -cc, or each by itself"}
        raise ConfigError("compilation settings are given twice", details)
    return ["--compilation-config", text]


def _value(text: str) -> Any:
    """Return a setting's value: JSON where it is, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _with_dashes(argument: str) -> str:
    """Let ``--max_model_len`` stand for ``--max-model-len``; values stay as they are."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value
