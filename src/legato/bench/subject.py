"""What a row is about: which engine, on which model. Owns the fields that all rows begin with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An engine over a model, as it was configured."""

    engine: str
    """``legato``, ``vllm`` or ``transformers``."""
    version: str
    model: str
    dtype: str
    backend: str | None = None
    """Attention backend; None where the engine does not tell."""
    policy: str | None = None
    """Graph policy; None where it is the engine's own."""
