"""A training run from files of prompts to a published head. Owns the order of its parts, and the folder it leaves.

::

    config.json, model.safetensors   the head, for any engine; written at each checkpoint
    training/invented.jsonl          prompts that the target made up
    training/answers.jsonl           the target's answers
    training/state.safetensors       where the run has come to
    training/seconds.json            the time that it took so far
    training/log.jsonl               loss and acceptance on held-out prompts
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from legato.config.options import EngineOptions
from legato.engine.bootstrap import load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved, resolve
from legato.errors import ConfigError
from legato.training.acceptance import Evaluation
from legato.training.corpus import AnsweringEngine, Corpus, collect
from legato.training.loop import SECONDS, TrainingLoop
from legato.training.progress import RunProgress
from legato.training.prompts import read_prompts
from legato.training.published import describe_head
from legato.training.questions import Split, split_prompts
from legato.training.saved_state import STATE
from legato.training.settings import TrainingOptions
from legato.training.time_budget import Stopwatch, TimeBudget


def train_drafter(
    data: Sequence[Path],
    out: Path,
    options: TrainingOptions,
    engine: EngineOptions,
    progress: RunProgress,
    console: Console | None = None,
    stopwatch: Stopwatch | None = None,
) -> Evaluation:
    """Train a head on the target's answers to the prompts of ``data``, leave it in ``out``, and return how good it is.

    ``stopwatch``: of the run, where it began before this call. Raises ConfigError, ModelError or RequestError before
    anything is generated where the run cannot be had, and ConfigError where its time is over.
    """
    options.check()
    stopwatch = stopwatch or Stopwatch()
    kept = out / "training"
    if (kept / STATE).exists() and not options.resume:
        details = {"requested": out, "found": kept / STATE, "options": "--resume | another --out"}
        raise ConfigError("the folder holds a training run", details)
    prompts = read_prompts(data)
    others = read_prompts([Path(name) for name in options.held_out])
    engine = _sized(engine, options)
    resolved = resolve(engine)
    _check_head(resolved, options)
    split = split_prompts(prompts, others, options, seed=engine.seed)
    kept.mkdir(parents=True, exist_ok=True)
    if options.resume:
        stopwatch.go_on(kept / SECONDS)
    try:
        model = load_model(resolved, BuildProgress(console))
        budget = TimeBudget(stopwatch, options.max_minutes)
        corpus = _answered(AnsweringEngine(resolved, model, engine, progress, console, budget), split, options, kept)
        return TrainingLoop(resolved, model, corpus, options, out, progress, budget).train()
    finally:
        stopwatch.keep(kept / SECONDS)


def _answered(engine: AnsweringEngine, split: Split, options: TrainingOptions, folder: Path) -> Corpus:
    """Return the answers, with the engine closed."""
    try:
        return collect(engine, split, options, folder)
    except KeyboardInterrupt:
        engine.progress.note("stopped: the answers so far are kept, and --resume asks for the others")
        raise
    finally:
        engine.close()


def _sized(engine: EngineOptions, options: TrainingOptions) -> EngineOptions:
    """Return options for an engine whose sequences are those that are trained on."""
    return engine if engine.max_model_len is not None else replace(engine, max_model_len=options.max_length)


def _check_head(resolved: Resolved, options: TrainingOptions) -> None:
    """Raise ConfigError where the head cannot be: its layers, its vocabulary or its texts."""
    longest = resolved.config.scheduler.max_model_len
    if options.max_length > longest:
        details = {"requested": options.max_length, "limit": f"--max-model-len {longest}"}
        raise ConfigError("--max-length is longer than the engine's sequences", details)
    describe_head(resolved, options, 1)
