"""From options to the engines that a measurement drives. Owns which are built, and with what."""

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from legato.cli.bench_options import LatencyOptions, ThroughputOptions
from legato.config.options import EngineOptions

if TYPE_CHECKING:  # they import torch
    from legato.bench.contestant import Contestant, SteppedEngine
    from legato.config.engine import EngineConfig


def contestants(
    workload: LatencyOptions, engine: EngineOptions, console: Console
) -> "tuple[list[Contestant], EngineConfig]":
    """Build Legato once per policy, and the peer; return Legato's configuration too."""
    _require(workload.peer)
    if workload.peer_alone:
        config = resolved_config(engine)
        return _peers(workload.peer, engine, config), config
    from legato.bench.legato_contestant import LegatoContestant, contestant_per_policy

    if len(workload.mode) > 1:
        own = contestant_per_policy(engine, workload.mode, console)
    else:
        [policy] = workload.mode or (engine.graph_policy,)
        own = [LegatoContestant("legato", replace(engine, graph_policy=policy), console)]
    config = own[0].core.config
    return [*own, *_peers(workload.peer, engine, config)], config


def drafting_engines(
    peer: str, engine: EngineOptions, config: "EngineConfig", console: Console, *, peer_alone: bool
) -> "list[tuple[SteppedEngine, SteppedEngine | None]]":
    """Build Legato, vLLM or both with the drafter; beside each the same without it, where that is measured too."""
    _require(peer)
    engines: list[tuple[SteppedEngine, SteppedEngine | None]] = []
    if not peer_alone:
        from legato.bench.legato_contestant import plain_and_drafting

        plain, drafting = plain_and_drafting(engine, console)
        engines.append((drafting, plain))
    if peer == "vllm":
        from legato.bench.vllm_peer import VllmPeer

        engines.append((VllmPeer.like(engine, config, tells_drafts=True), None))
    return engines


def _require(peer: str) -> None:
    """Find out that a peer is not there before anything is built."""
    if peer == "vllm":
        from legato.bench.vllm_peer import require_vllm

        require_vllm()


def _peers(name: str, engine: EngineOptions, config: "EngineConfig") -> "list[Contestant]":
    if name == "transformers":
        from legato.bench.transformers_peer import TransformersPeer

        return [TransformersPeer(engine.model, engine.load_format, config.dtype, config.device)]
    if name == "vllm":
        from legato.bench.vllm_peer import VllmPeer

        return [VllmPeer.like(engine, config)]
    return []


def stepped_engines(
    workload: ThroughputOptions, engine: EngineOptions, config: "EngineConfig", console: Console
) -> "list[SteppedEngine]":
    """Build Legato, vLLM or both; ``config`` is Legato's configuration."""
    _require(workload.peer)
    engines: list[SteppedEngine] = []
    if not workload.peer_alone:
        from legato.bench.legato_contestant import LegatoContestant

        engines.append(LegatoContestant("legato", engine, console))
    if workload.peer == "vllm":
        from legato.bench.vllm_peer import VllmPeer

        engines.append(VllmPeer.like(engine, config))
    return engines


def resolved_config(engine: EngineOptions) -> "EngineConfig":
    """Return the configuration that Legato would have; nothing is built."""
    from legato.engine.resolve import resolve

    return resolve(engine).config
