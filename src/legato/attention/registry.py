"""Which attention backends there are. A table that can be read; modules are imported when a backend is asked for."""

from importlib import import_module

from legato.attention.protocol import AttentionBackend
from legato.errors import BackendError

BACKENDS: dict[str, str] = {
    "triton": "legato.attention.backends.triton:TritonBackend",
    "flash_attn": "legato.attention.backends.flash_attn:FlashAttnBackend",
    "flashinfer": "legato.attention.backends.flashinfer:FlashInferBackend",
    "torch_sdpa": "legato.attention.backends.torch_sdpa:TorchSdpaBackend",
    "reference": "legato.attention.backends.reference:ReferenceBackend",
}
"""name -> "module:class", in order of preference."""


def load_backend(name: str) -> type[AttentionBackend]:
    """Return the backend class of that name.

    Raises BackendError for an unknown name.
    """
    if name not in BACKENDS:
        raise BackendError(
            f"there is no attention backend {name!r}",
            {"requested": f"--attention-backend {name}", "options": " | ".join(["auto", *BACKENDS])},
        )
    module, _, attribute = BACKENDS[name].partition(":")
    backend: type[AttentionBackend] = getattr(import_module(module), attribute)
    return backend
