"""From the options to the tracer of an engine. Owns which of file and ranges there are."""

from pathlib import Path

from legato.config.options import EngineOptions
from legato.device.nvtx import nvtx_ranges
from legato.engine.resolve import Resolved
from legato.errors import ConfigError
from legato.observability.trace import NO_TRACE, StepTrace, TraceFile, Tracer


def open_trace(options: EngineOptions, resolved: Resolved) -> Tracer:
    """Return what ``--trace`` and ``--nvtx`` ask for; raises ConfigError for a file that cannot be written."""
    ranges = nvtx_ranges(resolved.device.facts) if options.nvtx else None
    if options.trace is None:
        return NO_TRACE if ranges is None else StepTrace(options.model, None, ranges)
    try:
        file = TraceFile.at(Path(options.trace))
    except OSError as error:
        details = {"requested": f"--trace {options.trace}", "found": error.strerror or error}
        raise ConfigError("the trace cannot be written", details) from error
    config = resolved.config
    return StepTrace(f"{config.model_name}, {config.graph_policy}, {config.attention_backend}", file, ranges)
