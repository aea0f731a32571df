"""What ``legato bench`` measures, as typed. Owns the options and their help; measuring is bench's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from legato.config.options import option
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy

if TYPE_CHECKING:
    from legato.bench.closed_loop import LoopWorkload

WORKLOAD = "Workload"
RESULT = "Result"


def profile_option() -> Any:
    """Declare where profiles go."""
    return option(
        None,
        "Folder for a profile of each engine of Legato, recorded after its measurement, over one more turn.",
        metavar="DIR",
        panel=RESULT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the rows go."""

    json: bool = option(False, "Print the rows as JSON on standard output, without tables.", panel=RESULT)
    output: str | None = option(None, "File for the rows, as JSON.", metavar="FILE", panel=RESULT, aliases=("--save",))
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
    profile: str | None = profile_option()
    case_prefix: str | None = option(
        None,
        "Name of the rows; default: 'decode', and a batch of 8 is 'decode-b8'; with a drafter 'eagle3-k3-a2.8-b8'.",
        panel=RESULT,
    )


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

    num_requests: tuple[int, ...] | None = option(
        None,
        "Requests that count, for each number at once or one for all; default: eight times as many as run at once.",
        metavar="N,N,…",
        panel=WORKLOAD,
    )
    concurrency: tuple[int, ...] = option(
        (8,),
        "Requests at once: a new one is added when one ends; several numbers are measured one by one.",
        metavar="N,N,…",
        panel=WORKLOAD,
    )
    input_len: int = option(256, "Tokens of each prompt, random, without a common prefix.", panel=WORKLOAD)
    output_len: int = option(64, "Tokens generated for each prompt.", panel=WORKLOAD)
    warmup: int | None = option(
        None, "Requests before them that do not count; default: as many as run at once.", panel=WORKLOAD
    )
    peer: str = option("none", "Engine to measure in the same run.", choices=("none", "vllm"), panel=WORKLOAD)
    peer_alone: bool = option(
        False, "Measure the peer by itself, on a device that cannot hold both engines.", panel=WORKLOAD
    )
    profile: str | None = profile_option()
    case: str | None = option(
        None,
        "Name of the row; default: 'closed-8' for 8 at once. Several rows have the number behind it.",
        panel=RESULT,
    )

    def loops(self, vocab_size: int) -> "list[LoopWorkload]":
        """Return one workload per number at once. Raises ConfigError where there are other numbers of requests."""
        from legato.bench.closed_loop import LoopWorkload

        numbers = self.num_requests or tuple(8 * concurrency for concurrency in self.concurrency)
        numbers = numbers * len(self.concurrency) if len(numbers) == 1 else numbers
        if len(numbers) != len(self.concurrency):
            raise ConfigError(
                "--num-requests and --concurrency do not match",
                {
                    "requested": f"{len(numbers)} numbers of requests for {len(self.concurrency)} numbers at once",
                    "options": "one number of requests, or one for each",
                },
            )
        single = len(numbers) == 1 and self.case is not None
        return [
            LoopWorkload(
                case=self.case if single and self.case else f"{self.case or 'closed'}-{concurrency}",
                num_requests=num_requests,
                concurrency=concurrency,
                input_len=self.input_len,
                output_len=self.output_len,
                warmup_requests=concurrency if self.warmup is None else self.warmup,
                vocab_size=vocab_size,
            )
            for num_requests, concurrency in zip(numbers, self.concurrency, strict=True)
        ]


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
