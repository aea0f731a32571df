"""Which attention backends there are, and under which names. Tables that can be read.

Modules are imported when a backend is asked for, so that an absent kernel library costs nothing.
"""

from importlib import import_module
from itertools import product

from legato.attention.pair import SEPARATOR, paired
from legato.attention.protocol import AttentionBackend
from legato.errors import BackendError

BACKENDS: dict[str, str] = {
    "triton": "legato.attention.backends.triton:TritonBackend",
    "flash_attn_3": "legato.attention.backends.flash_attn_3:FlashAttn3Backend",
    "flash_attn_2": "legato.attention.backends.flash_attn_2:FlashAttn2Backend",
    "flashinfer": "legato.attention.backends.flashinfer:FlashInferBackend",
    "torch_sdpa": "legato.attention.backends.torch_sdpa:TorchSdpaBackend",
    "reference": "legato.attention.backends.reference:ReferenceBackend",
}
"""name -> "module:class", in order of preference."""

ALIASES: dict[str, tuple[str, ...]] = {
    "flash_attn": ("flash_attn_3", "flash_attn_2"),
    "fa3": ("flash_attn_3",),
    "fa2": ("flash_attn_2",),
    "triton_attn": ("triton",),
}
"""Other names that users know -> the backends they stand for, in order of preference."""


def backends_named(requested: str) -> tuple[str, ...]:
    """Return the backends that ``requested`` stands for, in upper or lower case; ``auto`` stands for all of them.

    ``FIRST+SECOND`` stands for pairs: the first for uniform batches, the second for all others.
    Raises BackendError for an unknown name, listing the known ones.
    """
    name = requested.lower()
    if name.count(SEPARATOR) == 1:
        parts = [backends_named(part) for part in name.split(SEPARATOR)]
        return tuple(SEPARATOR.join(pair) for pair in product(*parts))
    if name == "auto":
        return tuple(BACKENDS)
    if name in BACKENDS:
        return (name,)
    if name in ALIASES:
        return ALIASES[name]
    also = ", ".join(f"{alias} ({' or '.join(names)})" for alias, names in ALIASES.items())
    raise BackendError(
        f"there is no attention backend {requested!r}",
        {
            "requested": f"--attention-backend {requested}",
            "options": " | ".join(["auto", *BACKENDS]),
            "also": f"{also}; FIRST+SECOND, for uniform and for all other batches; in upper or lower case",
        },
    )


def load_backend(name: str) -> type[AttentionBackend]:
    """Return the class of the backend of that name: one in ``BACKENDS``, or a pair of them."""
    if SEPARATOR in name:
        for_uniform, for_others = map(load_backend, name.split(SEPARATOR))
        return paired(for_uniform, for_others)
    module, _, attribute = BACKENDS[name].partition(":")
    backend: type[AttentionBackend] = getattr(import_module(module), attribute)
    return backend
