"""EngineOptions -> everything that is decided before anything is built. Owns the defaults that depend on model and
device, and reads configuration files only: no weight is touched and nothing is allocated.
"""

from dataclasses import dataclass, replace

import torch

from legato.attention.selection import BackendChoice, select_backend
from legato.attention.setup import AttentionSetup
from legato.config.engine import CacheConfig, Decision, EngineConfig, SchedulerConfig
from legato.config.model import ModelConfig
from legato.config.options import EngineOptions
from legato.config.speculative import SpeculativeConfig
from legato.device.protocol import Device
from legato.device.registry import open_device
from legato.engine.defaults import DEFAULTS, DeviceDefaults
from legato.engine.graph_options import GraphRequest, graph_request
from legato.engine.memory import kv_is_measured, planned_kv_bytes
from legato.engine.speculation import Speculation, check_budget, speculation
from legato.errors import ConfigError
from legato.graphs.catalog import Catalog, GraphLimits, KeyIntsOf, build_catalog
from legato.graphs.policy import ResolvedPolicy, resolve_policy
from legato.kvcache.sizing import blocks_in_budget
from legato.kvcache.spec import LayerGroup
from legato.loading.model_config import read_model_config
from legato.loading.source import ModelSource, resolve_model
from legato.models.registry import model_class


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the engine will be built from."""

    config: EngineConfig
    kv_is_measured: bool
    """Whether ``config.cache.num_blocks`` is only likely, until :func:`with_measured_cache` sets it."""
    source: ModelSource
    device: Device
    dtype: torch.dtype
    layer_groups: tuple[LayerGroup, ...]
    attention: AttentionSetup
    backend: BackendChoice
    limits: GraphLimits
    catalog: Catalog
    key_ints: KeyIntsOf
    """The backend's host integers, by (num_reqs, query_len, max_seq_len)."""
    speculation: Speculation | None
    """The drafter; None: there is none."""


def resolve(options: EngineOptions) -> Resolved:
    """Return all decisions that ``options`` lead to.

    Raises ConfigError or ModelError, saying what was asked, what was found and what to do.
    """
    source = resolve_model(options.model, options.load_format)
    model = read_model_config(source)
    device = open_device(options.device)
    dtype = getattr(torch, model.dtype if options.dtype == "auto" else options.dtype)
    found = speculation(options, model)
    groups = model_class(model.architecture).layer_groups(model) + (() if found is None else found.plan.layer_groups)
    speculative = None if found is None else found.config
    defaults = DEFAULTS[device.facts.kind]
    planned = planned_kv_bytes(options, device, model, dtype)
    cache, max_model_len = _cache(options, model, groups, dtype, planned, _num_drafts(found))
    scheduler = _scheduler(options, defaults, max_model_len, speculative)
    setup = _attention_setup(model, device, dtype, cache, scheduler, found)
    backend = select_backend(options.attention_backend, setup, groups)
    request = graph_request(options, defaults)
    limits, key_ints = _graph_limits(scheduler, speculative), _key_ints_of(backend, setup)
    policy = _policy(options, request, backend, limits, found)
    stages = () if found is None else found.stages
    catalog = build_catalog(policy, limits, sizes=request.sizes, key_ints=key_ints, draft_stages=stages)
    config = EngineConfig(
        model_name=options.model,
        served_model_name=options.served_model_name or options.model,
        model=model,
        dtype=setup.dtype,
        device=device.facts.kind,
        cache=cache,
        scheduler=scheduler,
        overlap=defaults.overlap if options.overlap is None else options.overlap,
        attention_backend=backend.name,
        graph_policy=str(request.policy),
        graph_sizes=request.sizes,
        graph_strict=options.graph_strict,
        compile=options.compile,
        max_logprobs=options.max_logprobs,
        seed=options.seed,
        decisions=(*_backend_decisions(options, backend), *request.decisions, *policy.decisions),
        speculative=speculative,
    )
    return Resolved(
        config=config,
        kv_is_measured=kv_is_measured(options, device),
        source=source,
        device=device,
        dtype=dtype,
        layer_groups=groups,
        attention=setup,
        backend=backend,
        limits=limits,
        catalog=catalog,
        key_ints=key_ints,
        speculation=found,
    )


def with_measured_cache(resolved: Resolved, options: EngineOptions, budget_bytes: int) -> Resolved:
    """Return ``resolved`` with a cache of ``budget_bytes``; everything else was decided before and stays.

    Sequences are shortened where the cache holds none of the planned length. Raises ConfigError where the user asked
    for that length.
    """
    config, num_drafts = resolved.config, _num_drafts(resolved.speculation)
    cache, longest = _cache(options, config.model, resolved.layer_groups, resolved.dtype, budget_bytes, num_drafts)
    max_model_len = min(longest, config.scheduler.max_model_len)
    scheduler = replace(config.scheduler, max_model_len=max_model_len)
    return replace(resolved, config=replace(config, cache=cache, scheduler=scheduler))


def _num_drafts(found: Speculation | None) -> int:
    return 0 if found is None else found.config.num_speculative_tokens


def _attention_setup(
    model: ModelConfig,
    device: Device,
    dtype: torch.dtype,
    cache: CacheConfig,
    scheduler: SchedulerConfig,
    found: Speculation | None,
) -> AttentionSetup:
    return AttentionSetup(
        model=model,
        device=device.facts,
        dtype=str(dtype).removeprefix("torch."),
        block_size=cache.block_size,
        max_model_len=scheduler.max_model_len + (0 if found is None else found.config.slack),
        max_num_seqs=scheduler.max_num_seqs,
        drafter=None if found is None else found.plan.model,
        lengths_on_host=found is None,
    )


def _policy(
    options: EngineOptions,
    request: GraphRequest,
    backend: BackendChoice,
    limits: GraphLimits,
    found: Speculation | None,
) -> ResolvedPolicy:
    """Return the modes that the backend's layers, the drafter's among them, allow."""
    return resolve_policy(
        request.policy,
        backend.support,
        backend=backend.name,
        widths=limits.widths,
        strict=options.graph_strict,
        drafts_attend=None if found is None else bool(found.plan.layer_groups),
    )


def _cache(
    options: EngineOptions,
    model: ModelConfig,
    groups: tuple[LayerGroup, ...],
    dtype: torch.dtype,
    budget_bytes: int,
    num_drafts: int,
) -> tuple[CacheConfig, int]:
    """Return the cache's size, and the longest sequence: the user's, or as much of the model's as fits with drafts."""
    if not 1 <= options.block_size <= 1024:
        raise ConfigError("block size is out of range", {"requested": options.block_size, "limit": "1 to 1024"})
    longest = model.max_position_embeddings if options.max_model_len is None else options.max_model_len
    if not 1 <= longest <= model.max_position_embeddings:
        raise ConfigError(
            "--max-model-len is out of range",
            {"requested": longest, "limit": f"1 to {model.max_position_embeddings}, the model's positions"},
        )
    num_blocks = blocks_in_budget(
        groups,
        block_size=options.block_size,
        element_bytes=dtype.itemsize,
        budget_bytes=budget_bytes,
        max_model_len=longest if options.max_model_len else options.block_size,
        num_drafts=num_drafts,
    )
    max_model_len = min(longest, (num_blocks - 1) * options.block_size - num_drafts)
    cache = CacheConfig(block_size=options.block_size, num_blocks=num_blocks, prefix_caching=options.prefix_caching)
    return cache, max_model_len


def _scheduler(
    options: EngineOptions, defaults: DeviceDefaults, max_model_len: int, speculative: SpeculativeConfig | None
) -> SchedulerConfig:
    """Return the limits of a batch, each at least 1 and none that no batch could reach."""
    max_num_seqs = defaults.max_num_seqs if options.max_num_seqs is None else options.max_num_seqs
    width = 1 if speculative is None else speculative.width
    tokens = options.max_num_batched_tokens
    max_num_batched_tokens = max(defaults.max_num_batched_tokens, max_num_seqs * width) if tokens is None else tokens
    for name, value in (("--max-num-seqs", max_num_seqs), ("--max-num-batched-tokens", max_num_batched_tokens)):
        if value < 1:
            raise ConfigError(f"{name} is out of range", {"requested": value, "limit": "at least 1"})
    if max_num_batched_tokens < max_num_seqs:
        raise ConfigError(
            "--max-num-batched-tokens is smaller than --max-num-seqs",
            {
                "requested": f"{max_num_batched_tokens} tokens for {max_num_seqs} requests",
                "limit": "a token for each request",
                "options": f"--max-num-batched-tokens {max_num_seqs} | --max-num-seqs {max_num_batched_tokens}",
            },
        )
    if speculative is not None:
        check_budget(speculative, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    return SchedulerConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=min(max_num_batched_tokens, max_num_seqs * max(max_model_len, width)),
        policy=options.scheduling_policy,
        max_queue=options.max_queue,
    )


def _graph_limits(scheduler: SchedulerConfig, speculative: SpeculativeConfig | None) -> GraphLimits:
    return GraphLimits(
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=scheduler.max_model_len + (0 if speculative is None else speculative.slack),
        widths=(1,) if speculative is None else tuple(1 + number for number in speculative.numbers_of_drafts),
    )


def _key_ints_of(choice: BackendChoice, setup: AttentionSetup) -> KeyIntsOf:
    return lambda num_reqs, query_len, max_seq_len: choice.backend.key_ints(
        setup, num_reqs=num_reqs, query_len=query_len, max_seq_len=max_seq_len
    )


def _backend_decisions(options: EngineOptions, choice: BackendChoice) -> tuple[Decision, ...]:
    requested = options.attention_backend
    if requested == choice.name:
        return ()
    first = "first of the registry that serves" if requested == "auto" else f"what {requested!r} stands for"
    reason = "; ".join(f"{name}: {why}" for name, why in choice.passed_over) or first
    return (Decision(subject="attention backend", requested=requested, given=choice.name, reason=reason),)
