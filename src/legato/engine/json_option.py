"""Options that are typed as a JSON object. Owns what can be wrong with the text; what a setting means is not its."""

import json
from collections.abc import Sequence
from typing import Any

from legato.errors import ConfigError


def json_settings(option: str, text: str, keys: Sequence[str], example: str) -> dict[str, Any]:
    """Return the settings that are not null. Raises ConfigError for what is no JSON object, or has other ``keys``.

    ``example``: a text that the option takes, for the errors.
    """
    typed = f"{option} '{example}'"
    try:
        value = json.loads(text)
    except (TypeError, json.JSONDecodeError) as error:
        raise ConfigError(
            f"{option} is not JSON", {"requested": text, "found": error, "options": f"such as {typed}"}
        ) from error
    if not isinstance(value, dict):
        raise ConfigError(f"{option} is a JSON object", {"requested": text, "options": f"such as {typed}"})
    unknown = sorted(set(value) - set(keys))
    if unknown:
        raise ConfigError(f"{option} has unknown keys", {"requested": ", ".join(unknown), "options": " | ".join(keys)})
    return {key: setting for key, setting in value.items() if setting is not None}
