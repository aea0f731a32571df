"""What ``legato bench serve`` measures, as typed. Owns the options and their help; measuring is bench's."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from legato.cli.bench_options import RESULT, WORKLOAD, profile_option
from legato.config.options import option
from legato.errors import ConfigError

if TYPE_CHECKING:
    from legato.bench.serving.arrivals import Arrivals
    from legato.bench.serving.datasets import DatasetSpec
    from legato.bench.serving.measure import Load

SERVER = "Server"
PROMPTS = "Prompts"
DATASETS = ("random", "prefix-repetition", "sharegpt", "mt-bench", "spec-bench", "gsm8k", "custom")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """Who is asked, and how."""

    base_url: str | None = option(
        None,
        "Server to measure, with or without /v1; default: one with the engine options below, for the time of the "
        "measurement. Its model is --served-model-name, or the first that it lists.",
        metavar="URL",
        panel=SERVER,
    )
    api_key: str | None = option(None, "Key that the server wants.", panel=SERVER)
    endpoint: str = option("completions", "Interface that is asked.", choices=("completions", "chat"), panel=SERVER)
    ignore_eos: bool = option(False, "Answers have their full length, whatever the model says.", panel=SERVER)
    temperature: float = option(0.0, "Temperature of the answers; negative: the server's default.", panel=SERVER)
    stall_timeout: float = option(
        600.0, "Seconds in which a server may send nothing before a request has failed.", panel=SERVER
    )
    tokenizer: str | None = option(
        None, "Folder or hub id whose tokenizer makes and counts prompts; default: that of --model.", panel=SERVER
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """What is asked."""

    dataset: str = option(
        "random", "Where prompts come from.", choices=DATASETS, panel=PROMPTS, aliases=("--dataset-name",)
    )
    dataset_path: str | None = option(
        None, "File of prompts, in the data set's own shape.", metavar="FILE", panel=PROMPTS
    )
    input_len: int = option(1024, "random: tokens of each prompt.", panel=PROMPTS, aliases=("--random-input-len",))
    output_len: int | None = option(
        None,
        "Tokens of each answer at most; default: the data set's own, or 128.",
        panel=PROMPTS,
        aliases=("--random-output-len",),
    )
    range_ratio: float = option(
        0.0, "random: lengths are drawn from so much less to so much more, evenly.", panel=PROMPTS
    )
    random_input: str | None = option(
        None,
        "random, prefix-repetition: token ids, or words of the same number of tokens; default: ids where the "
        "interface takes them.",
        choices=("ids", "words"),
        panel=PROMPTS,
    )
    prefix_len: int | None = option(
        None, "random: tokens before each prompt, the same for all; prefix-repetition: of each prefix.", panel=PROMPTS
    )
    suffix_len: int = option(256, "prefix-repetition: tokens behind the prefix.", panel=PROMPTS)
    num_prefixes: int = option(10, "prefix-repetition: different prefixes.", panel=PROMPTS)
    category: str | None = option(None, "mt-bench, spec-bench: only questions of this category.", panel=PROMPTS)

    def spec(self, endpoint: str) -> "DatasetSpec":
        """Return the data set. Raises ConfigError for lengths that make no prompt."""
        from legato.bench.serving.datasets import DatasetSpec

        repeated = self.dataset == "prefix-repetition"
        prefix_len = self.prefix_len if self.prefix_len is not None else 256 * repeated
        least = {
            "--input-len": (self.input_len, 1),
            "--output-len": (1 if self.output_len is None else self.output_len, 1),
            "--prefix-len": (prefix_len, int(repeated)),
            "--suffix-len": (self.suffix_len, 1),
            "--num-prefixes": (self.num_prefixes, 1),
        }
        for name, (value, limit) in least.items():
            if value < limit:
                raise ConfigError(f"{name} is out of range", {"requested": value, "limit": f"at least {limit}"})
        if not 0 <= self.range_ratio < 1:
            raise ConfigError("--range-ratio is out of range", {"limit": "from 0 to less than 1"})
        as_ids = (self.random_input or ("words" if endpoint == "chat" else "ids")) == "ids"
        if as_ids and endpoint == "chat" and self.random_input is not None:
            raise ConfigError("a chat takes no token ids", {"options": "--random-input words | --endpoint completions"})
        return DatasetSpec(
            name=self.dataset,
            path=None if self.dataset_path is None else Path(self.dataset_path),
            input_len=self.input_len,
            output_len=self.output_len,
            range_ratio=self.range_ratio,
            prefix_len=prefix_len,
            suffix_len=self.suffix_len,
            num_prefixes=self.num_prefixes,
            category=self.category,
            as_ids=as_ids,
        )

    @property
    def name(self) -> str:
        """How rows name the prompts."""
        if self.dataset == "random":
            return f"random-{self.input_len}/{self.output_len or 128}"
        return self.dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """When, and how often."""

    num_prompts: tuple[int, ...] = option(
        (1000,), "Requests of each run; one number for all loads, or one for each.", metavar="N,N,…", panel=WORKLOAD
    )
    request_rate: str = option(
        "inf",
        "Requests sent per second; inf: all at once. Several rates are measured one by one.",
        metavar="X,X,…",
        panel=WORKLOAD,
    )
    burstiness: str = option(
        "1", "Shape of the intervals' gamma distribution: 1 is Poisson, less is bursty, inf is even.", panel=WORKLOAD
    )
    ramp_up: str | None = option(
        None, "Instead of one rate: linear:FROM:TO or exponential:FROM:TO, in requests per second.", panel=WORKLOAD
    )
    max_concurrency: tuple[int, ...] | None = option(
        None,
        "Requests at once at most; several numbers are measured one by one.",
        metavar="N,N,…",
        panel=WORKLOAD,
    )
    warmup: int = option(1, "Requests before each run that do not count.", panel=WORKLOAD)
    repeat: int = option(1, "Runs of each load, which tell how noisy the figures are.", panel=WORKLOAD)
    goodput: tuple[str, ...] = option(
        (),
        "Latencies in ms that a good request keeps to, such as 'ttft:200 tpot:20 e2e:5000'.",
        panel=RESULT,
        metavar="NAME:MS …",
    )
    label: str | None = option(None, "Name of the server in the rows; default: 'legato' or 'server'.", panel=RESULT)
    profile: str | None = profile_option()
    plot: str | None = option(None, "Draw latencies and throughput over the loads.", metavar="FILE.png", panel=RESULT)

    def loads(self, name: str) -> "tuple[Load, ...]":
        """Return what is measured, load by load. Raises ConfigError for numbers that make none."""
        from legato.bench.serving.measure import sweep

        concurrencies = self.max_concurrency or (None,)
        positive = [*self.num_prompts, *(each for each in concurrencies if each is not None), self.repeat]
        if min(positive) < 1 or self.warmup < 0:
            details = {"limit": "at least 1 for --num-prompts, --max-concurrency and --repeat; 0 for --warmup"}
            raise ConfigError("a number of requests or runs is out of range", details)
        return sweep(self._arrivals(), concurrencies, self.num_prompts, name)

    def _arrivals(self) -> "list[Arrivals]":
        from legato.bench.serving.arrivals import Arrivals, parse_burstiness, parse_ramp_up, parse_rates

        burstiness, rates = parse_burstiness(self.burstiness), parse_rates(self.request_rate)
        if self.ramp_up is None:
            return [Arrivals(rate=rate, burstiness=burstiness) for rate in rates]
        if self.request_rate != "inf":
            raise ConfigError("a ramp has rates of its own", {"options": "--ramp-up or --request-rate"})
        return [Arrivals(rate=rates[0], burstiness=burstiness, ramp_up=parse_ramp_up(self.ramp_up))]
