"""Why a step, a key or a policy did not get the graph asked for. Owns the vocabulary, nothing else."""

from enum import StrEnum


class Reason(StrEnum):
    """Closed set: a fallback without one of these does not exist."""

    DISABLED_BY_USER = "disabled_by_user"
    """The policy gives this class of batch no better mode."""
    BACKEND_LEVEL = "backend_level"
    """The attention backend cannot do this inside a full graph."""
    BACKEND_DECLINED = "backend_declined"
    """The backend can in general, not for this batch."""
    BATCH_TOO_LARGE = "batch_too_large"
    """No captured size is large enough."""
    WIDTH_MISMATCH = "width_mismatch"
    """Uniform, but of a query length for which nothing was captured."""
    SAMPLER_VARIANT = "sampler_variant"
    """The batch needs a sampler that no graph holds; sampling ran eagerly after the graph."""
    GUIDED_OUTPUT = "guided_output"
    """Which tokens a guided request may have is known once its last one is read; sampling ran after the graph."""
    CAPTURE_FAILED = "capture_failed"
    """The key's capture raised; it is not in the catalog any more."""
    CANARY_FAILED = "canary_failed"
    """The key's replay differed from the eager result; it is not in the catalog any more."""
    STALE_EPOCH = "stale_epoch"
    """A buffer moved after the capture."""
    FEATURE_INCOMPATIBLE = "feature_incompatible"
    """A request asks for what only an eager step gives, such as prompt log-probabilities."""
