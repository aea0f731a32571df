"""Where a run has come to, in one file that it can go on from. Owns its form: tensors and JSON, never a pickle.

Nothing random is drawn while a head is trained: the order of batches follows from the seed and the number of the step.
So weights, the optimiser's state, that number and the length of the run are all there is.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from legato.errors import ConfigError
from legato.training.trainer import Trainer

STATE = "state.safetensors"
"""The file's name in the folder of a run."""
_SCALE = "input_scale"
_WEIGHT, _OPTIMIZER = "weight.", "optimizer."


def save_state(file: Path, trainer: Trainer, step: int, num_steps: int | None, made_with: Mapping[str, Any]) -> None:
    """Write the state after ``step`` steps; a file that is there is replaced only when all is written.

    ``num_steps``: where the run ends, None where that is not decided yet; ``made_with``: JSON values that a run which
    goes on must share.
    """
    tensors = {_SCALE: trainer.head.input_scale}
    for index, (name, weight) in enumerate(trainer.head.weights.items()):
        tensors[_WEIGHT + name] = weight.detach()
        for key, value in trainer.optimizer.state_dict()["state"].get(index, {}).items():
            tensors[f"{_OPTIMIZER}{key}.{name}"] = value
    unfinished = file.with_suffix(".unfinished")
    metadata = {"step": str(step), "num_steps": json.dumps(num_steps), "made_with": json.dumps(made_with)}
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, unfinished, metadata)
    unfinished.replace(file)


def load_state(file: Path, trainer: Trainer, made_with: Mapping[str, Any]) -> tuple[int, int | None]:
    """Give ``trainer`` the state of ``file``; return the steps that were taken, and ``num_steps`` as it was kept.

    Raises ConfigError where the file cannot be read, or the run was made with other settings, naming each.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata()
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
        step, num_steps = int(metadata["step"]), json.loads(metadata["num_steps"])
        before = json.loads(metadata["made_with"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ConfigError("the checkpoint cannot be read", {"requested": file, "found": error}) from error
    _check_same(file, before, made_with)
    weights = trainer.head.weights
    trainer.head.input_scale.copy_(tensors[_SCALE])
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[_WEIGHT + name])
    state: dict[int, dict[str, torch.Tensor]] = {}
    for index, name in enumerate(weights):
        own = {key: key.removeprefix(_OPTIMIZER).partition(".") for key in tensors if key.startswith(_OPTIMIZER)}
        state[index] = {part: tensors[key] for key, (part, _, of) in own.items() if of == name}
    trainer.optimizer.load_state_dict({**trainer.optimizer.state_dict(), "state": state})
    return step, num_steps


def _check_same(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(now))  # as it would be read back
    apart = {
        name: f"{before.get(name)} before, {now.get(name)} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    }
    if apart:
        options = "the same options as before | another --out"
        raise ConfigError("a run cannot go on with other settings", {"requested": file, **apart, "options": options})
