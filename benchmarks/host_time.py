"""What the host spends on a decode step, by part, without a GPU.

    python benchmarks/host_time.py [--requests 1,8,64,256] [--steps 128] [--repeats 5] [--profile N]

Everything is the engine's own but the graphs, whose replay does nothing here: scheduler, planner over a whole catalog,
input buffers and caches of 30 layers, results, commit, and ``LLM.generate`` with a real tokenizer.
Microseconds of the thread's own time per step: the smallest mean of any block's worth of steps in a row (every request
takes a new block once in them), because other work on the machine only adds. ``step`` is all of ``EngineCore.step``,
measured with the parts' clocks off; ``generate`` is what passes between two steps, and ``stop string`` the same where
the text of every token is needed.
"""

import argparse
import cProfile
import json
import pstats
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.llm import LLM
from legato.engine.resolve import resolve
from legato.flow.sampling_params import SamplingParams
from legato.graphs.captured import CapturedGraph
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import resolve_model
from legato.observability.trace import NoTrace, Tracer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 30,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
MAX_NUM_SEQS = 256
PROMPT_LEN = 8
BLOCK_SIZE = 16
OPTIONS = EngineOptions(
    load_format="dummy",
    device="cpu",
    overlap=True,
    block_size=BLOCK_SIZE,
    max_num_seqs=MAX_NUM_SEQS,
    max_num_batched_tokens=MAX_NUM_SEQS * PROMPT_LEN,
    kv_cache_memory_bytes=1 << 28,
)
PARTS = ("schedule", "plan", "prepare", "replay", "sample", "wait", "commit")
NOT_STEADY = 3
"""Steps at either end of a run that prefill, or in which requests end."""


class NoWork:
    """Implements :class:`~legato.device.protocol.DeviceGraph` for a device that takes no time."""

    num_nodes = 0
    num_bytes = 0

    def replay(self) -> None:
        """Do nothing: the tokens are those of the step before."""


@dataclass(slots=True)
class TimedStep:
    """One call of the loop, in nanoseconds."""

    begun: int
    ended: int = 0
    parts: Counter[str] = field(default_factory=Counter)


class Stopwatch(NoTrace):
    """Implements :class:`~legato.observability.trace.Tracer` with two readings of the clock a step."""

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one call of the loop."""
        self.steps.append(TimedStep(time.thread_time_ns()))
        yield
        self.steps[-1].ended = time.thread_time_ns()


class PartsStopwatch(Stopwatch):
    """A stopwatch for the parts too."""

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time a part of the call."""
        begun = time.thread_time_ns()
        yield
        self.steps[-1].parts[name] += time.thread_time_ns() - begun


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", default=f"1,8,64,{MAX_NUM_SEQS}")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", type=int, help="print the profile of this many requests instead")
    arguments = parser.parse_args()
    build = _builder()
    if arguments.profile is not None:
        _profile(build(Stopwatch()), arguments.profile, arguments.steps)
        return
    table = Table("requests", *PARTS, "step", "generate", "stop string", title="host microseconds per decode step")
    for size in map(int, arguments.requests.split(",")):
        times = _measure(build, size, arguments.steps, arguments.repeats)
        table.add_row(str(size), *(f"{value:.1f}" for value in times))
    Console(width=140).print(table)


def _measure(build: Callable[[Tracer], LLM], size: int, num_steps: int, repeats: int) -> list[float]:
    """Return the columns of one row."""
    parts, plain = PartsStopwatch(), Stopwatch()
    parts_llm, plain_llm = build(parts), build(plain)
    repeated = []
    for _ in range(repeats):
        steps = _generate(parts_llm, parts, size, num_steps)
        row = [_smallest([step.parts[part] for step in steps]) for part in PARTS]
        steps = _generate(plain_llm, plain, size, num_steps)
        row += [_smallest([step.ended - step.begun for step in steps]), _smallest(_between(steps))]
        row.append(_smallest(_between(_generate(plain_llm, plain, size, num_steps, stop=("\x00",)))))
        repeated.append(row)
    return [min(column) / 1e3 for column in zip(*repeated, strict=True)]


def _smallest(times: Sequence[int]) -> float:
    """Return the smallest mean of as many times in a row as a block has tokens."""
    return min(fmean(times[start : start + BLOCK_SIZE]) for start in range(len(times) - BLOCK_SIZE))


def _generate(
    llm: LLM, stopwatch: Stopwatch, size: int, num_steps: int, *, stop: tuple[str, ...] = ()
) -> Sequence[TimedStep]:
    """Run ``size`` requests and return their steady steps."""
    random_ids = random.Random(len(stopwatch.steps))
    prompts = [[random_ids.randrange(300, 500) for _ in range(PROMPT_LEN)] for _ in range(size)]
    params = SamplingParams(temperature=0.0, ignore_eos=True, stop=stop, max_tokens=num_steps + 2 * NOT_STEADY)
    stopwatch.steps.clear()
    llm.generate(prompts, params, use_progress=False)
    assert {record.num_reqs for record in llm.step_records()[-num_steps:]} == {size}, "requests did not run together"
    return stopwatch.steps[NOT_STEADY : NOT_STEADY + num_steps]


def _between(steps: Sequence[TimedStep]) -> list[int]:
    return [after.begun - before.ended for before, after in pairwise(steps)]


def _profile(llm: LLM, size: int, num_steps: int) -> None:
    stopwatch = Stopwatch()
    _generate(llm, stopwatch, size, num_steps)
    profile = cProfile.Profile()
    profile.enable()
    llm.generate([[5] * PROMPT_LEN] * size, SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=num_steps))
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def _builder() -> Callable[[Tracer], LLM]:
    """Return a function that builds an engine whose graphs do nothing."""
    tokenizer = load_tokenizer(resolve_model("smollm2"))

    def build(trace: Tracer) -> LLM:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(CONFIG))
            options = replace(OPTIONS, model=folder)
            core = build_engine(replace(options, graph_sizes=(1,)))
            catalog = resolve(options).catalog
        runner = core.runner
        core.tokenizer, core._trace, runner._trace = tokenizer, trace, trace
        epoch, runner.graphs.catalog = runner.graphs.epoch.current(), catalog
        for key in catalog.keys:
            runner.graphs.store.add(CapturedGraph(key=key, parts=(NoWork(),), epoch=epoch, capture_ms=0.0))
        return LLM.over(core)

    return build


if __name__ == "__main__":
    main()
