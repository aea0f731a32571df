"""ModelSource -> a model with its weights. Owns the match of a checkpoint's tensors with a model's parameters.

Tensors stream one by one: each is checked before it is read, read, converted, and written to its place. A model comes
out only if every parameter was written.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from legato.config.model import ModelConfig
from legato.errors import ModelError, WeightsError
from legato.layers.linear import PackedLinear
from legato.loading.dummy import fill_with_random
from legato.loading.source import ModelSource, WeightFormat
from legato.loading.stored_tensor import LoadReport, Progress, StoredTensor
from legato.loading.weights import stored_bytes, stored_tensors
from legato.models.causal_lm import CausalLM
from legato.models.registry import model_class

_MISSING_SHOWN = 5
ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def build_model(
    source: ModelSource,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device | str,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[CausalLM, LoadReport]:
    """Return the model of ``config`` with the weights of ``source``, converted to ``dtype``, on ``device``.

    ``seed`` draws dummy weights. Raises WeightsError, naming file, tensor, expected and found, for a tensor that is
    missing, damaged or of another shape, and ModelError where memory is short; nothing half-loaded is returned.
    """
    build, device = model_class(config.architecture), torch.device(device)
    model = allocate(lambda: build(config, dtype, device), f"{config.architecture} in {dtype} on {device}")
    return model, fill(source, config, dict(checkpoint_parameters(model)), seed=seed, progress=progress)


def allocate(build: Callable[[], ModuleT], requested: str) -> ModuleT:
    """Return what ``build`` makes, for inference. Raises ModelError, naming ``requested``, where memory is short."""
    try:
        return build().eval()
    except (RuntimeError, MemoryError) as error:  # torch's many ways to say that memory is short
        raise ModelError(
            "the model cannot be allocated",
            {
                "requested": requested,
                "found": str(error).split("\n")[0],
                "options": "a smaller --dtype | a smaller model | memory that something else holds",
            },
        ) from error


def fill(
    source: ModelSource,
    config: ModelConfig,
    parameters: dict[str, torch.Tensor],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> LoadReport:
    """Write every tensor of ``parameters``, by its name in the checkpoint, in place; errors as of :func:`build_model`.

    Of dummy weights, tables of whole numbers stay as they are.
    """
    started = time.perf_counter()
    unexpected: tuple[str, ...] = ()
    with torch.no_grad():
        if source.format is WeightFormat.DUMMY:
            fill_with_random(((name, each) for name, each in parameters.items() if each.is_floating_point()), seed)
            num_bytes = sum(tensor.nbytes for tensor in parameters.values())
        else:
            num_bytes, unexpected = _stream(source, config, parameters, progress or (lambda done, total: None))
    seconds = time.perf_counter() - started
    return LoadReport(seconds=seconds, num_bytes=num_bytes, num_tensors=len(parameters), unexpected=unexpected)


def checkpoint_parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every place that a checkpoint fills, under its name there; packed parameters as the parts they consist of.

    A parameter that two modules share comes once, under its first name.
    """
    seen: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, PackedLinear):
            parent = path.rpartition(".")[0]
            for name, part in module.part_parameters():
                yield f"{parent}.{name}", part
            continue
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{path}.{name}" if path else name, parameter.data


def _stream(
    source: ModelSource, config: ModelConfig, parameters: dict[str, torch.Tensor], progress: Callable[[int, int], None]
) -> tuple[int, tuple[str, ...]]:
    """Fill every parameter; return the bytes read and the tensors that no parameter wanted."""
    total, done = stored_bytes(source), 0
    unfilled, unexpected = set(parameters), []
    progress(0, total)
    for tensor in stored_tensors(source, config):
        done += tensor.num_bytes
        if tensor.name in unfilled:
            _fill(parameters[tensor.name], tensor)
            unfilled.remove(tensor.name)
        elif tensor.name in parameters:
            raise _mismatch(tensor, "each tensor once", "a second one of this name")
        else:
            unexpected.append(tensor.stored_name)
        progress(done, total)
    if unfilled:
        missing = [name for name in parameters if name in unfilled]
        shown = ", ".join(missing[:_MISSING_SHOWN]) + (", …" if len(missing) > _MISSING_SHOWN else "")
        raise WeightsError(
            "the checkpoint lacks tensors of the model",
            {
                "file": source.path,
                "tensor": shown,
                "expected": f"{len(parameters)} tensors of {config.architecture}",
                "found": f"{len(parameters) - len(missing)}; {len(missing)} missing",
                "options": "all files of the checkpoint | --load-format dummy, for random weights",
            },
        )
    progress(total, total)
    return done, tuple(unexpected)


def _fill(parameter: torch.Tensor, tensor: StoredTensor) -> None:
    if tensor.is_floating != parameter.is_floating_point():
        kinds = {True: "floating-point numbers", False: "whole numbers"}
        raise _mismatch(tensor, kinds[parameter.is_floating_point()], kinds[tensor.is_floating])
    if tensor.shape != tuple(parameter.shape):
        raise _mismatch(tensor, f"shape {tuple(parameter.shape)}, as the configuration says", f"shape {tensor.shape}")
    parameter.copy_(tensor.load())


def _mismatch(tensor: StoredTensor, expected: str, found: str) -> WeightsError:
    return WeightsError(
        "a tensor of the checkpoint does not fit the model",
        {"file": tensor.file, "tensor": tensor.stored_name, "expected": expected, "found": found},
    )
