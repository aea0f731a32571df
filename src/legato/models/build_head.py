"""ModelSource -> a draft head with its weights. Owns the names under which heads store what they consist of.

A head's tensors stand at the top of its checkpoint, without the ``model.`` of language models. What it shares with the
target is no parameter of it.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch

from legato.config.model import ModelConfig
from legato.errors import WeightsError
from legato.loading.draft_head_config import DraftHeadConfig
from legato.loading.source import ModelSource, WeightFormat
from legato.loading.stored_tensor import LoadReport, Progress
from legato.loading.weights import stored_tensors
from legato.models.build import allocate, checkpoint_parameters, fill
from legato.models.eagle import EagleHead
from legato.models.eagle3 import Eagle3Head
from legato.models.mtp import MtpModules
from legato.models.registry import model_class

EMBEDDING = "embed_tokens.weight"
OFFSETS, MASK = "d2t", "t2d"
"""Of a reduced vocabulary: what is added to a draft id for its target id, and which target ids can be drafted."""
_OTHER_LAYER_NAMES = {"midlayer.": "layers.0."}
"""EAGLE-3's layer as its authors name it -> as other trainers do."""


def stored_names(source: ModelSource, config: ModelConfig) -> frozenset[str]:
    """Return the names of the tensors of a checkpoint, reading headers alone; of dummy weights, none."""
    if source.format is WeightFormat.DUMMY:
        return frozenset()
    return frozenset(tensor.name for tensor in stored_tensors(source, config))


def build_eagle3_head(
    source: ModelSource,
    config: DraftHeadConfig,
    layer_index: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Eagle3Head, LoadReport]:
    """Return the head of ``config`` with the weights of ``source``; errors as for a language model.

    ``layer_index``: number of its attention layer.
    """
    names = stored_names(source, config.model)
    own = EMBEDDING in names
    head = allocate(
        lambda: Eagle3Head(config, layer_index, dtype, device, own_embedding=own),
        f"{config.model.architecture} in {dtype} on {device}",
    )
    parameters = dict(checkpoint_parameters(head)) | {OFFSETS: head.d2t}
    if config.draft_vocab_size == config.model.vocab_size and OFFSETS not in names:
        del parameters[OFFSETS]  # all offsets are zero
    report = fill(source, config.model, _as_stored(parameters, names), seed=seed, progress=progress)
    head.follow_offsets()
    _check_offsets(source, config, head)
    return head, replace(report, unexpected=tuple(name for name in report.unexpected if name != MASK))


def build_eagle_head(
    source: ModelSource,
    config: DraftHeadConfig,
    first_layer: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[EagleHead, LoadReport]:
    """Return the head of ``config`` with the weights of ``source``; errors as for a language model.

    ``first_layer``: number of its first attention layer.
    """
    own = EMBEDDING in stored_names(source, config.model)
    head = allocate(
        lambda: EagleHead(config, first_layer, dtype, device, own_embedding=own),
        f"{config.model.architecture} in {dtype} on {device}",
    )
    return head, fill(source, config.model, dict(checkpoint_parameters(head)), seed=seed, progress=progress)


def build_mtp_modules(
    source: ModelSource,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[MtpModules, LoadReport]:
    """Return the modules for multi-token prediction in the checkpoint of the model that ``config`` describes.

    Of that checkpoint everything else is ``unexpected``. Errors as for a language model.
    """
    modules = allocate(
        lambda: MtpModules(model_class(config.architecture).attention, config, dtype, device),
        f"{config.num_mtp_modules} modules of {config.architecture} in {dtype} on {device}",
    )
    parameters = {f"model.{name}": each for name, each in checkpoint_parameters(modules)}
    return modules, fill(source, config, parameters, seed=seed, progress=progress)


def _as_stored(parameters: Mapping[str, torch.Tensor], names: frozenset[str]) -> dict[str, torch.Tensor]:
    """Return ``parameters`` under the names that the checkpoint gives them."""
    for ours, other in _OTHER_LAYER_NAMES.items():
        if any(name.startswith(other) for name in names):
            return {name.replace(ours, other): each for name, each in parameters.items()}
    return dict(parameters)


def _check_offsets(source: ModelSource, config: DraftHeadConfig, head: Eagle3Head) -> None:
    """Raise WeightsError where a draft would be no token of the target."""
    first, last = int(head.target_ids.min()), int(head.target_ids.max())
    if first < 0 or last >= config.model.vocab_size:
        raise WeightsError(
            "the draft head's tokens are none of the target's",
            {
                "file": source.path,
                "tensor": OFFSETS,
                "expected": f"target ids from 0 to {config.model.vocab_size - 1}, as the configuration says",
                "found": f"ids from {first} to {last}",
            },
        )
