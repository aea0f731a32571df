"""The exception tree. Owns every error that Legato raises on purpose; knows nothing of what raises it.

::

    LegatoError
    ├── ConfigError                 an option, or a combination of options, cannot be had
    │   ├── GraphPolicyError        strict mode: the graphs asked for cannot be had
    │   └── BackendError            an attention backend cannot serve this model on this device
    ├── ModelError                  the model cannot be loaded
    │   ├── ModelNotFoundError      nothing stands at the given name or path
    │   ├── UnsupportedModelError   the architecture or a feature of it is unknown
    │   └── WeightsError            a tensor is missing, truncated or of the wrong shape
    ├── RequestError                one request is refused; nothing else is lost by it
    │   └── QueueFullError          the engine holds as many requests as it may
    ├── GraphError                  a graph cannot be captured or replayed
    │   ├── GraphCaptureError       the captured function did what no graph can hold
    │   └── StaleGraphError         a buffer moved after the capture
    └── EngineDeadError             the engine process has ended; its requests end with it
"""

from collections.abc import Mapping


class LegatoError(Exception):
    """Base of all errors raised on purpose.

    ``summary`` is one sentence; ``details`` are labelled lines, in the order given: what was requested, what was
    found, the limit, the options. ``str()`` gives all of them, aligned.
    """

    def __init__(self, summary: str, details: Mapping[str, object] | None = None) -> None:
        self.summary = summary
        self.details = dict(details or {})
        super().__init__(summary, self.details)

    def __str__(self) -> str:
        width = max((len(label) for label in self.details), default=0)
        lines = [f"  {label:<{width}}  {text}" for label, text in self.details.items()]
        return "\n".join([self.summary, *lines])


class ConfigError(LegatoError):
    """An option, or a combination of options, cannot be had."""


class GraphPolicyError(ConfigError):
    """Strict mode: the graphs asked for cannot be had."""


class BackendError(ConfigError):
    """An attention backend cannot serve this model on this device."""


class ModelError(LegatoError):
    """The model cannot be loaded."""


class ModelNotFoundError(ModelError):
    """Nothing stands at the given name or path."""


class UnsupportedModelError(ModelError):
    """The architecture, or a feature of it, is unknown."""


class WeightsError(ModelError):
    """A tensor is missing, truncated or of the wrong shape."""


class RequestError(LegatoError):
    """One request is refused. ``param`` names the offending parameter, where there is one."""

    def __init__(self, summary: str, details: Mapping[str, object] | None = None, *, param: str | None = None) -> None:
        super().__init__(summary, details)
        self.param = param


class QueueFullError(RequestError):
    """The engine holds as many requests as it may."""


class GraphError(LegatoError):
    """A graph cannot be captured or replayed."""


class GraphCaptureError(GraphError):
    """The captured function did what no graph can hold: a host read, or a tensor that outlives the replay."""


class StaleGraphError(GraphError):
    """A buffer that the graph was captured over has moved."""


class EngineDeadError(LegatoError):
    """The engine process has ended; its requests end with it."""
