"""The same questions under several graph policies and attention backends, over weights that are loaded once.

Owns the order of engines and what each is held to: a backend's later policies to its first, its first to the first
backend's. Answers must be the same to the token; where they are not, the scores there tell a near-tie from a fault.
"""

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from rich.console import Console

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine, load_model
from legato.engine.core import EngineCore
from legato.engine.pinned_options import pinned
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.eval.answers import Answer, Progress
from legato.eval.differences import Comparison, TokenIds, departures, judged
from legato.eval.gsm8k import Prompt
from legato.eval.in_process import EngineUnderTest
from legato.eval.questions import Questions
from legato.eval.row import EvalRow, row
from legato.flow.sampling_params import SamplingParams
from legato.graphs.modes import GraphPolicy
from legato.models.causal_lm import CausalLM
from legato.results.rows_file import model_name

_NUM_BEST = 20
"""Best tokens that are asked for where two answers part."""
_WARM_UP_TOKENS = 4

EngineProgress = Callable[[str], AbstractContextManager[Progress]]
"""Told the name of each engine; shows, while its questions run, what it is told."""


def evaluate(options: EngineOptions, asked: Questions, console: Console, progress: EngineProgress) -> EvalRow:
    """Ask one engine, whose building is shown on ``console``."""
    run = _Run(asked, progress)
    run.add(build_engine(options, console), None)
    return run.rows[0]


def compare_policies(
    options: EngineOptions,
    asked: Questions,
    console: Console,
    progress: EngineProgress,
    *,
    policies: Sequence[GraphPolicy],
    backends: Sequence[str],
) -> list[EvalRow]:
    """Ask one engine per attention backend and policy, and hold their answers to each other.

    Raises ConfigError before anything is loaded where a backend cannot serve.
    """
    resolved = [resolve(replace(options, attention_backend=name)) for name in backends]
    each = [replace(pinned(options, resolved[0]), attention_backend=one.config.attention_backend) for one in resolved]
    model = load_model(resolved[0], BuildProgress(console))
    run = _Run(asked, progress)
    first = None
    for backend in each:
        reference = first
        for policy in policies:
            name = _ask(run, replace(backend, graph_policy=str(policy)), model, reference, console)
            reference = name if policy is policies[0] else reference
        first = first or reference
    return run.rows


def _ask(run: "_Run", options: EngineOptions, model: CausalLM, reference: str | None, console: Console) -> str:
    """Build an engine, ask it and let go of it; return its name."""
    gc.collect()  # the engine before holds its graphs and its cache in reference cycles
    console.print(f"engine {options.attention_backend} {options.graph_policy}", style="bold", highlight=False)
    return run.add(build_engine(options, console, model=model), reference)


class _Run:
    """All engines so far: their rows, and their answers as tokens."""

    def __init__(self, asked: Questions, progress: EngineProgress) -> None:
        self._asked = asked
        self._progress = progress
        self._said: dict[str, list[TokenIds]] = {}
        self.rows: list[EvalRow] = []

    def add(self, core: EngineCore, reference: str | None) -> str:
        """Ask an engine everything and judge its answers; return the name that later ones can be held to."""
        name = f"{core.config.attention_backend} {core.config.graph_policy}"
        engine = EngineUnderTest(core)
        params = SamplingParams(temperature=0.0, max_tokens=self._asked.max_tokens, stop=self._asked.stop)
        _warm_up(engine, self._asked.prompts[0])
        steps_before = core.stats().graph_steps
        with self._progress(name) as progress:
            started = time.perf_counter()
            answers = engine.answer(self._asked.prompts, params, progress)
            seconds = time.perf_counter() - started
        steps = {step: count - steps_before.get(step, 0) for step, count in core.stats().graph_steps.items()}
        self._said[name] = [_token_ids(answer) for answer in answers]
        compared = None if reference is None else self._compare(engine, name, reference)
        self.rows.append(
            row(
                self._asked,
                answers,
                seconds,
                engine="legato",
                model=model_name(core.config.model_name),
                dtype=core.config.dtype,
                backend=core.config.attention_backend,
                policy=core.config.graph_policy,
                graph_steps={step: count for step, count in steps.items() if count},
                compared=compared,
            )
        )
        return name

    def _compare(self, engine: EngineUnderTest, name: str, reference: str) -> Comparison:
        """Find where answers part, and ask the engine how near the two tokens are there."""
        parted = departures(self._said[reference], self._said[name])
        sequences = [
            (
                *engine.prompt_token_ids(self._asked.prompts[one.question]),
                *self._said[name][one.question][: one.position],
            )
            for one in parted
        ]
        config = engine.core.config
        found = tuple(
            judged(departure, position, dtype=config.dtype, vocab_size=config.model.vocab_size)
            for departure, position in zip(parted, engine.scores_after(sequences, _NUM_BEST), strict=True)
        )
        return Comparison(compared_with=reference, differences=found)


def _warm_up(engine: EngineUnderTest, prompt: Prompt) -> None:
    """Let kernels be compiled before the clock runs, and forget the prompt again."""
    engine.answer([prompt], SamplingParams(temperature=0.0, max_tokens=_WARM_UP_TOKENS))
    engine.core.reset_prefix_cache()


def _token_ids(answer: Answer) -> TokenIds:
    assert answer.token_ids is not None, "an engine in this process tells its tokens"
    return answer.token_ids
