"""The one file that reads the environment. Owns the names of Legato's variables and what each means."""

import os
from collections.abc import Iterable
from pathlib import Path

_COMPILE_CACHES = (
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "CUDA_CACHE_PATH",
    "VLLM_CACHE_ROOT",
)
"""Variables that name folders of compiled kernels, of Legato's libraries and of its peers."""


def debug() -> bool:
    """Return whether LEGATO_DEBUG is set: an error is then printed with its traceback."""
    return os.environ.get("LEGATO_DEBUG", "").lower() not in ("", "0", "false")


def commit() -> str | None:
    """Return LEGATO_COMMIT: the commit that runs, for results measured where there is no git; None: not told."""
    return os.environ.get("LEGATO_COMMIT") or None


def cuda_home() -> str | None:
    """Return where the CUDA toolkit is, as its own tools are told: CUDA_HOME, or CUDA_PATH; None: they are not told."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")


def named_compiler(variable: str) -> str | None:
    """Return the compiler that CC or CXX names, without its flags; None: it names none."""
    words = os.environ.get(variable, "").split()
    return words[0] if words else None


def with_search_path(paths: Iterable[str]) -> dict[str, str]:
    """Return the environment for a child process that finds modules in ``paths``."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def with_fresh_caches(folder: Path | None) -> dict[str, str]:
    """Return the environment for a child process that finds no compiled kernels; None: it finds the user's."""
    fresh = {} if folder is None else {name: str(folder / name.lower()) for name in _COMPILE_CACHES}
    return os.environ | fresh
