"""The table of drafters: method, as people type it -> the class, imported when asked for.

To add a drafter: one file here, one line below. The contract suite runs over every line.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from legato.errors import ConfigError

if TYPE_CHECKING:  # it imports torch, and the names alone are asked for where a command is only being read
    from legato.speculative.setup import DrafterClass

DRAFTERS: dict[str, str] = {
    "ngram": "legato.speculative.ngram:NgramDrafter",
    "eagle3": "legato.speculative.eagle3:Eagle3Drafter",
    "eagle": "legato.speculative.eagle:EagleDrafter",
    "mtp": "legato.speculative.mtp:MtpDrafter",
    "draft_model": "legato.speculative.draft_model:DraftModelDrafter",
}


def drafter_class(method: str) -> "DrafterClass":
    """Return the drafter of ``method``. Raises ConfigError, listing those there are."""
    if method not in DRAFTERS:
        raise ConfigError(
            "there is no such way to draft",
            {
                "requested": f'--speculative-config with "method": "{method}"',
                "options": " | ".join(DRAFTERS),
            },
        )
    module, _, name = DRAFTERS[method].partition(":")
    found: DrafterClass = getattr(import_module(module), name)
    return found
