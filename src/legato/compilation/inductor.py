"""Pieces compiled by TorchInductor. Owns the call into it, and the check that it can work on this machine."""

import shutil
from collections.abc import Callable, Sequence

import torch

from legato.compilation.pieces import Piece
from legato.config.environment import named_compiler
from legato.errors import ConfigError, ModelError

_OLDEST_TORCH = (2, 11)
_COMPILERS = {"cpu": ("CXX", ("g++", "clang++")), "cuda": ("CC", ("gcc", "clang"))}
"""Device -> the variable that names a compiler, and the compilers looked for: C++ for kernels on the CPU, C for the
launchers that Triton builds."""


def check_inductor(device_kind: str) -> None:
    """Raise ConfigError, saying what to install, where TorchInductor cannot generate code for this kind of device."""
    _check_torch(torch.__version__)
    variable, names = _COMPILERS[device_kind]
    named = named_compiler(variable)
    looked_for = names if named is None else (named,)
    if not any(map(shutil.which, looked_for)):
        raise ConfigError(
            "--compile inductor needs a compiler, and none was found",
            {
                "requested": " or ".join(looked_for),
                "found": "none of them on PATH",
                "options": f"apt install g++, or your system's package of it | set {variable} | --compile none",
            },
        )


def _check_torch(version: str) -> None:
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if numbers < _OLDEST_TORCH:
        raise ConfigError(
            "--compile inductor cannot work with this PyTorch",
            {
                "found": version,
                "limit": f"PyTorch {'.'.join(map(str, _OLDEST_TORCH))} or later",
                "options": "install a later PyTorch | --compile none",
            },
        )


def inductor(piece: Piece) -> Callable[..., Sequence[torch.Tensor]]:
    """Return ``piece`` as code that TorchInductor generated, for any number of tokens.

    Raises ModelError where it cannot.
    """
    import torch._inductor

    try:
        return torch._inductor.standalone_compile(piece.graph, piece.example_inputs, dynamic_shapes="from_graph")
    except Exception as error:  # whatever a compiler may raise is reported with the piece
        raise ModelError(
            "TorchInductor cannot compile a piece of this model",
            {"found": f"{type(error).__name__}: {error}", "options": "--compile none"},
        ) from error
