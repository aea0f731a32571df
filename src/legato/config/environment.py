"""The one file that reads the environment. Owns the names of Legato's variables and what each means."""

import os


def debug() -> bool:
    """Return whether LEGATO_DEBUG is set: an error is then printed with its traceback."""
    return os.environ.get("LEGATO_DEBUG", "").lower() not in ("", "0", "false")
