"""The drafter while an engine is decided and built: what it needs, and the step program with it."""

from dataclasses import dataclass, replace

import torch

from legato.attention.protocol import AttentionBackend
from legato.config.engine import SchedulerConfig
from legato.config.model import ModelConfig
from legato.config.options import EngineOptions
from legato.config.speculative import RejectionMethod, SpeculativeConfig
from legato.engine.progress import BuildProgress
from legato.engine.speculative_options import speculative_request
from legato.errors import ConfigError
from legato.graphs.modes import Stage
from legato.kvcache.storage import LayerCache
from legato.models.causal_lm import CausalLM
from legato.runner.device_state import DeviceState
from legato.runner.drafter import Drafter
from legato.runner.round_buffers import RoundBuffers
from legato.runner.round_program import RoundProgram
from legato.runner.step_program import CausalModel
from legato.sampling.acceptance import SyntheticAcceptance
from legato.sampling.state import SamplingState
from legato.speculative.registry import drafter_class
from legato.speculative.setup import DrafterPlan, DrafterSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A drafter that was decided on."""

    config: SpeculativeConfig
    plan: DrafterPlan

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What the drafter does after the target."""
        return (Stage.EXTEND, Stage.DRAFT) if self.plan.extends else (Stage.DRAFT,)


def speculation(options: EngineOptions, target: ModelConfig) -> Speculation | None:
    """Return the drafter that was asked for; None: none was.

    Raises ConfigError or ModelError, naming both sides, where it does not fit the target.
    """
    config = speculative_request(options.speculative_config)
    if config is None:
        return None
    config = _beside_target(config, options)
    plan = drafter_class(config.method).plan(config, target)
    if plan.auxiliary_layers and options.compile != "none":
        raise ConfigError(
            "generated code does not show the hidden states that the drafter reads",
            {
                "requested": f"--compile {options.compile} with {config.method}, which reads those of layers "
                + ", ".join(map(str, plan.auxiliary_layers)),
                "options": "--compile none | another method",
            },
        )
    return Speculation(config=config, plan=plan)


def _beside_target(config: SpeculativeConfig, options: EngineOptions) -> SpeculativeConfig:
    """Return ``config`` with what the target's options say of the drafter where nothing else does.

    A method whose weights are the target's own reads the target's checkpoint, and beside random weights all are random.
    """
    own = drafter_class(config.method).reads_target
    model = options.model if config.model is None and own else config.model
    dummy = config.load_format == "auto" and options.load_format == "dummy"
    return replace(config, model=model, load_format="dummy" if dummy else config.load_format)


def check_budget(config: SpeculativeConfig, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """Raise ConfigError where a step has no room for every request with its drafts."""
    needed = max_num_seqs * config.width
    if max_num_batched_tokens < needed:
        most = max(1, max_num_batched_tokens // config.width)
        raise ConfigError(
            "--max-num-batched-tokens is too small for every request with its drafts",
            {
                "requested": f"{max_num_batched_tokens} tokens for {max_num_seqs} requests",
                "limit": f"{config.width} tokens for each request: its next one and "
                f"{config.num_speculative_tokens} drafts",
                "options": f"--max-num-batched-tokens {needed} | --max-num-seqs {most}",
            },
        )


def load_drafter(
    found: Speculation,
    target: CausalLM,
    show: BuildProgress,
    *,
    dtype: torch.dtype,
    device: torch.device,
    scheduler: SchedulerConfig,
    seed: int,
) -> Drafter:
    """Return the drafter with its weights, on the device."""
    with torch.inference_mode(), show.loading(f"drafter {found.config.method}") as progress:
        return drafter_class(found.config.method).build(
            DrafterSetup(
                config=found.config,
                target_config=target.config,
                target=target,
                dtype=dtype,
                device=device,
                max_num_seqs=scheduler.max_num_seqs,
                max_model_len=scheduler.max_model_len,
                seed=seed,
                progress=progress,
            )
        )


@torch.inference_mode()
def round_program(
    config: SpeculativeConfig,
    drafter: Drafter,
    *,
    model: CausalModel,
    model_config: ModelConfig,
    backend: AttentionBackend,
    caches: dict[int, LayerCache],
    scheduler: SchedulerConfig,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> RoundProgram:
    """Allocate everything that graphs of rounds read."""
    max_num_seqs = scheduler.max_num_seqs
    max_blocks = -(-(scheduler.max_model_len + config.slack) // block_size)
    synthetic = config.rejection_method is RejectionMethod.SYNTHETIC
    return RoundProgram(
        model=model,
        backend=backend,
        caches=caches,
        buffers=RoundBuffers.for_rounds(
            width=config.width,
            num_auxiliary=len(drafter.auxiliary_layers),
            state_size=drafter.state_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            hidden_size=model_config.hidden_size,
            vocab_size=model_config.vocab_size,
            dtype=dtype,
            device=device,
        ),
        state=DeviceState(max_num_seqs, max_blocks, device, num_drafts=drafter.num_drafts),
        sampling=SamplingState(max_num_seqs, model_config.vocab_size, device),
        block_size=block_size,
        drafter=drafter,
        synthetic=SyntheticAcceptance(config.acceptance_rates, device) if synthetic else None,
        max_position=model_config.max_position_embeddings - 1,
    )
