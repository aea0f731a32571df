"""What ``legato bench`` measures, as typed. Owns the options and their help; measuring is bench's."""

from dataclasses import dataclass

from legato.config.options import option
from legato.graphs.modes import GraphPolicy

WORKLOAD = "Workload"
RESULT = "Result"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the rows go."""

    json: bool = option(False, "Print the rows as JSON on standard output, without tables.", panel=RESULT)
    output: str | None = option(None, "File for the rows, as JSON.", metavar="FILE", panel=RESULT)
    append: bool = option(False, "Keep the rows that the file has: several commands make one file.", panel=RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """What ``legato bench latency`` measures."""

    batch_size: tuple[int, ...] = option(
        (1, 8), "Requests at once; several sizes are measured one by one.", metavar="N,N,…", panel=WORKLOAD
    )
    input_len: int = option(128, "Tokens of each prompt.", panel=WORKLOAD)
    output_len: int = option(64, "Tokens generated for each prompt.", panel=WORKLOAD)
    iterations: int = option(5, "Turns that count.", panel=WORKLOAD)
    warmup: int = option(1, "Turns before them that do not.", panel=WORKLOAD)
    mode: tuple[str, ...] = option(
        (),
        "Graph policy to measure; repeated, the policies take turns. Default: that of --graph-policy.",
        choices=tuple(map(str, GraphPolicy)),
        panel=WORKLOAD,
    )
    peer: str = option(
        "none", "Engine to measure in the same run.", choices=("none", "transformers", "vllm"), panel=WORKLOAD
    )
    peer_alone: bool = option(
        False, "Measure the peer by itself, on a device that cannot hold both engines.", panel=WORKLOAD
    )
    case_prefix: str = option("decode", "Name of the rows: a batch of 8 is 'decode-b8'.", panel=RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesOptions:
    """What ``legato bench modes`` measures."""

    batch_size: tuple[int, ...] = option(
        (1, 2, 4, 8), "Requests at once; several sizes are measured one by one.", metavar="N,N,…", panel=WORKLOAD
    )
    input_len: int = option(128, "Tokens of each prompt.", panel=WORKLOAD)
    output_len: int = option(64, "Tokens generated for each prompt.", panel=WORKLOAD)
    iterations: int = option(3, "Turns that count.", panel=WORKLOAD)
    warmup: int = option(1, "Turns before them that do not.", panel=WORKLOAD)
    plot: str | None = option(
        None, "Draw time per token against batch size, a line per policy.", metavar="FILE.png", panel=RESULT
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputOptions:
    """What ``legato bench throughput`` measures."""

    num_requests: int = option(64, "Requests that count.", panel=WORKLOAD)
    concurrency: int = option(8, "Requests at once: a new one is added when one ends.", panel=WORKLOAD)
    input_len: int = option(256, "Tokens of each prompt, random, without a common prefix.", panel=WORKLOAD)
    output_len: int = option(64, "Tokens generated for each prompt.", panel=WORKLOAD)
    warmup: int | None = option(
        None, "Requests before them that do not count; default: as many as run at once.", panel=WORKLOAD
    )
    peer: str = option("none", "Engine to measure in the same run.", choices=("none", "vllm"), panel=WORKLOAD)
    peer_alone: bool = option(
        False, "Measure the peer by itself, on a device that cannot hold both engines.", panel=WORKLOAD
    )
    case: str | None = option(None, "Name of the rows; default: 'closed-8' for 8 at once.", panel=RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions:
    """What ``legato bench startup`` measures."""

    cold: bool = option(
        False,
        "Begin without compiled kernels: caches are in fresh folders, and yours stay as they are.",
        panel=WORKLOAD,
    )
    iterations: int = option(1, "Starts, each in a fresh process; the row has the median.", panel=WORKLOAD)
    peer: str = option("none", "Engine to start as well.", choices=("none", "vllm"), panel=WORKLOAD)
    peer_alone: bool = option(False, "Start the peer only.", panel=WORKLOAD)
    case: str | None = option(None, "Name of the rows; default: 'startup-cold' or 'startup-warm'.", panel=RESULT)
