"""Building an engine. Owns the order: decide, load, allocate, capture; and what the terminal shows meanwhile."""

from dataclasses import replace

import torch
from rich.console import Console

from legato.attention.compilation import CompilingBackend
from legato.attention.pair import BackendPair
from legato.attention.protocol import AttentionBackend
from legato.config.options import EngineOptions
from legato.engine.compiling import compiled, piece_compiler
from legato.engine.core import EngineCore
from legato.engine.draft_choice import draft_chooser
from legato.engine.kv_sizing import (
    first_caches,
    first_graphs,
    largest_step,
    memory_report,
    size_cache,
    synthetic_limits,
)
from legato.engine.overlap import OverlappedEngineCore
from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved, resolve
from legato.engine.speculation import load_drafter, round_program
from legato.engine.tracing import open_trace
from legato.errors import ConfigError, GraphPolicyError
from legato.loading.load_tokenizer import load_tokenizer
from legato.models.build import build_model
from legato.models.causal_lm import CausalLM
from legato.observability.records import StepLog
from legato.observability.trace import Tracer
from legato.plan.planner import Planner
from legato.runner.buffers import StepBuffers
from legato.runner.device_state import DeviceState
from legato.runner.drafter import Drafter
from legato.runner.graph_capture import DroppedKey
from legato.runner.kernel_compilation import compile_kernels
from legato.runner.model_runner import ModelRunner
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import CausalModel, StepProgram
from legato.sampling.state import SamplingState
from legato.scheduler.graph_fit import GraphFit
from legato.scheduler.scheduler import Scheduler


def build_engine(
    options: EngineOptions, console: Console | None = None, *, model: CausalModel | None = None
) -> EngineCore:
    """Return a running engine. Progress and decisions are shown on ``console``; None: nothing is shown.

    ``model``: what :func:`load_model` gave for the same model, device and data type, or that model compiled already;
    None: it is loaded here. Raises ConfigError or ModelError; in strict mode GraphPolicyError where a graph asked for
    cannot serve.
    """
    show = BuildProgress(console)
    resolved = resolve(options)
    compiler = piece_compiler(resolved)
    trace = open_trace(options, resolved)
    show.decisions(resolved.config.decisions)
    tokenizer = load_tokenizer(resolved.source)
    if model is None:
        with trace.span("weights"):
            model = load_model(resolved, show)
    drafter = _load_drafter(resolved, model, show)
    log = StepLog()
    with trace.span("compile"):
        model, backend = compiled(resolved, model, compiler, show), _build_backend(resolved, show)
    program = _build_program(resolved, model, backend, drafter)
    with trace.span("kernels"):
        _compile_kernels(resolved, program, show)
    with trace.span("memory"):
        resolved, profile = size_cache(resolved, options, program)
    graphs, dropped = _capture(resolved, program, show, trace)
    memory = memory_report(resolved, profile, graphs)
    show.memory(memory)
    if resolved.config.graph_strict and dropped:
        raise _strict_error(dropped)
    config = replace(resolved.config, decisions=(*resolved.config.decisions, *memory.wrong_estimate()))
    planner = Planner(
        limits=resolved.limits,
        key_ints=resolved.key_ints,
        draft_stages=() if resolved.speculation is None else resolved.speculation.stages,
    )
    scheduler = Scheduler(
        config.scheduler,
        config.cache,
        resolved.layer_groups,
        None if config.speculative is None else config.speculative.num_speculative_tokens,
        GraphFit(sizes=graphs.catalog.mixed_sizes),
    )
    runner = ModelRunner(resolved.device, program, graphs, log, trace)
    scheduler.chooser = draft_chooser(config.speculative, resolved.device, runner, planner, show)
    core = OverlappedEngineCore if config.overlap else EngineCore
    return core(
        config=config,
        tokenizer=tokenizer,
        scheduler=scheduler,
        planner=planner,
        runner=runner,
        step_log=log,
        dropped=dropped,
        memory=memory,
        trace=trace,
    )


def load_model(resolved: Resolved, show: BuildProgress) -> CausalLM:
    """Return the model with its weights, on the device; several engines, one after another, may serve it."""
    with show.loading(resolved.source.name) as progress:
        model, report = build_model(
            resolved.source,
            resolved.config.model,
            resolved.dtype,
            resolved.device.torch_device,
            seed=resolved.config.seed,
            progress=progress,
        )
    show.loaded(report)
    return model


def _load_drafter(resolved: Resolved, model: CausalModel, show: BuildProgress) -> Drafter | None:
    """Return the drafter with its weights; None: none was asked for. Raises ConfigError over code that is compiled."""
    found = resolved.speculation
    if found is None:
        return None
    if not isinstance(model, CausalLM):
        raise ConfigError("a drafter needs the model that was loaded", {"found": type(model).__name__})
    return load_drafter(
        found,
        model,
        show,
        dtype=resolved.dtype,
        device=resolved.device.torch_device,
        scheduler=resolved.config.scheduler,
        seed=resolved.config.seed,
    )


def _build_backend(resolved: Resolved, show: BuildProgress) -> AttentionBackend:
    """Return the attention backend with its workspaces, and with its kernels compiled where that is done here."""
    with torch.inference_mode():
        backend = resolved.backend.backend(resolved.attention)
        if isinstance(backend, CompilingBackend):
            with show.compiling(resolved.backend.name) as progress:
                backend.compile_kernels(resolved.limits.widths, progress)
    return backend


def _compile_kernels(resolved: Resolved, program: StepProgram, show: BuildProgress) -> None:
    """Compile Triton's kernels together; not where others would run over what those have left out.

    Of a pair of backends the first serves these steps alone: prompts' kernels are the second one's.
    """
    backend = program.backend
    alone = backend.uniform if isinstance(backend, BackendPair) else backend
    if alone.name == "triton" and resolved.config.compile == "none":
        with show.counting("compiling kernels") as progress:
            program.backend = alone
            graphs = first_graphs(resolved, program)
            compile_kernels(resolved.device, program, graphs, largest_step(resolved), progress)
            program.backend = backend


def _build_program(
    resolved: Resolved, model: CausalModel, backend: AttentionBackend, drafter: Drafter | None
) -> StepProgram:
    """Allocate everything that graphs read, once; of a cache whose size is measured, a first one."""
    config, device = resolved.config, resolved.device.torch_device
    scheduler, cache = config.scheduler, config.cache
    if drafter is not None and config.speculative is not None:
        return round_program(
            config.speculative,
            drafter,
            model=model,
            model_config=config.model,
            backend=backend,
            caches=first_caches(resolved),
            scheduler=scheduler,
            block_size=cache.block_size,
            dtype=resolved.dtype,
            device=device,
        )
    max_blocks = -(-scheduler.max_model_len // cache.block_size)
    with torch.inference_mode():
        return StepProgram(
            model=model,
            backend=backend,
            caches=first_caches(resolved),
            buffers=StepBuffers.create(
                max_num_seqs=scheduler.max_num_seqs,
                max_num_batched_tokens=scheduler.max_num_batched_tokens,
                hidden_size=config.model.hidden_size,
                vocab_size=config.model.vocab_size,
                dtype=resolved.dtype,
                device=device,
            ),
            state=DeviceState(scheduler.max_num_seqs, max_blocks, device),
            sampling=SamplingState(scheduler.max_num_seqs, config.model.vocab_size, device),
            block_size=cache.block_size,
            max_position=config.model.max_position_embeddings - 1,
        )


def _capture(
    resolved: Resolved, program: StepProgram, show: BuildProgress, trace: Tracer
) -> tuple[ServingGraphs, list[DroppedKey]]:
    """Return the graphs of the catalog, and the keys that cannot serve."""
    limits = synthetic_limits(resolved, resolved.config.cache.num_blocks)
    graphs = ServingGraphs(resolved.device, program, resolved.catalog, limits, trace)
    with show.capturing(len(resolved.catalog.keys)) as captured:
        dropped = graphs.capture(captured)
    show.captured(graphs.store.graphs.values(), dropped)
    return graphs, dropped


def _strict_error(dropped: list[DroppedKey]) -> GraphPolicyError:
    return GraphPolicyError(
        f"{len(dropped)} graphs were required but cannot serve",
        {str(drop.key): f"{drop.reason}: {drop.detail}" for drop in dropped} | {"options": "leave out --graph-strict"},
    )
