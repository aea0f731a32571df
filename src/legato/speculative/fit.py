"""Whether a drafter belongs to its target. Owns the comparison, and the error that names both sides."""

from collections.abc import Mapping
from dataclasses import replace

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.errors import ConfigError
from legato.loading.draft_head_config import DraftHeadConfig, read_draft_head_config
from legato.loading.source import ModelSource, resolve_model


def drafter_source(config: SpeculativeConfig) -> ModelSource:
    """Return the files of the drafter. Raises ConfigError where none was named, ModelNotFoundError as for a target."""
    if config.model is None:
        raise ConfigError(
            f"drafting with {config.method} needs weights",
            {
                "requested": f'--speculative-config with "method": "{config.method}" and no model',
                "options": '"model": a folder with config.json and *.safetensors, or a hub id',
            },
        )
    return resolve_model(config.model, config.load_format)


def head_config(source: ModelSource, architectures: tuple[str, ...], target: ModelConfig) -> DraftHeadConfig:
    """Return the configuration of a head that fits ``target``, with positions for all of the target's.

    Raises ConfigError where it does not fit, and ModelError where it is none of ``architectures``.
    """
    if source.is_gguf:
        raise ConfigError(
            "a draft head is not read from this format",
            {"requested": source.path, "options": "a folder with config.json and *.safetensors"},
        )
    config = read_draft_head_config(source.path, architectures)
    check_fit(
        source,
        target,
        {
            "hidden size": (config.target_hidden_size, target.hidden_size),
            "vocabulary": (config.model.vocab_size, target.vocab_size),
        },
    )
    return replace(config, model=with_positions_of(config.model, target))


def check_fit(source: ModelSource, target: ModelConfig, sides: Mapping[str, tuple[object, object]]) -> None:
    """Raise ConfigError with every one of ``sides``, (the drafter's, the target's) by name, that differs."""
    apart = {
        name: f"{of_drafter} in the drafter, {of_target} in the target"
        for name, (of_drafter, of_target) in sides.items()
        if of_drafter != of_target
    }
    if apart:
        raise ConfigError(
            "the drafter was not made for this target",
            {"drafter": source.path, "target": target.architecture, **apart},
        )


def with_positions_of(config: ModelConfig, target: ModelConfig) -> ModelConfig:
    """Return ``config`` with positions for every one of the target's.

    Heads often state the length that they were trained on; behind it their rotation goes on by the same formula.
    """
    return replace(config, max_position_embeddings=max(config.max_position_embeddings, target.max_position_embeddings))
