"""The one file that reads the environment. Owns the names of Legato's variables and what each means."""

import os
from collections.abc import Iterable


def debug() -> bool:
    """Return whether LEGATO_DEBUG is set: an error is then printed with its traceback."""
    return os.environ.get("LEGATO_DEBUG", "").lower() not in ("", "0", "false")


def commit() -> str | None:
    """Return LEGATO_COMMIT: the commit that runs, for results measured where there is no git; None: not told."""
    return os.environ.get("LEGATO_COMMIT") or None


def cuda_home() -> str | None:
    """Return where the CUDA toolkit is, as its own tools are told: CUDA_HOME, or CUDA_PATH; None: they are not told."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")


def with_search_path(paths: Iterable[str]) -> dict[str, str]:
    """Return the environment for a child process that finds modules in ``paths``."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
