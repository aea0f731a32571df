"""Tensors of a folder of safetensors, through memory mapping. Owns shards and their index; never opens a pickle.

Format after https://github.com/huggingface/safetensors: eight bytes of header length, a JSON header, then the data.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from legato.errors import WeightsError
from legato.loading.hf_config import read_json
from legato.loading.stored_tensor import StoredTensor

INDEX = "model.safetensors.index.json"
_FLOATING = ("F64", "F32", "F16", "BF16")
_TABLES = ("I64", "BOOL")
"""Not weights: what a drafter's vocabulary is mapped with."""


def safetensors_tensors(folder: Path) -> Iterator[StoredTensor]:
    """Yield every tensor of the folder's shards, each shard being mapped while its tensors are yielded.

    All headers are checked first. Raises WeightsError for a missing, truncated or inconsistent shard.
    """
    headers = {shard: _read_header(shard) for shard in _shards(folder)}
    _check_index(folder, headers)
    for shard, header in headers.items():
        with ExitStack() as stack:
            try:
                tensors = stack.enter_context(safe_open(shard, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise _bad_file(shard, "a valid safetensors file", error) from error
            yield from _stored(shard, header, tensors.get_tensor)


def _stored(shard: Path, header: dict[str, Any], get: Callable[[str], torch.Tensor]) -> Iterator[StoredTensor]:
    for name, entry in header.items():
        if entry["dtype"] not in _FLOATING + _TABLES:
            raise _bad_file(shard, f"one of {', '.join(_FLOATING + _TABLES)}", entry["dtype"], tensor=name)
        begin, end = entry["data_offsets"]
        yield StoredTensor(
            name=name,
            stored_name=name,
            file=str(shard),
            shape=tuple(entry["shape"]),
            num_bytes=end - begin,
            load=partial(get, name),
            is_floating=entry["dtype"] in _FLOATING,
        )


def _shards(folder: Path) -> list[Path]:
    """Return the files that make up the checkpoint: those of the index, or the one file, or all there are."""
    if (folder / INDEX).exists():
        names = sorted(set(_weight_map(folder).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            found = f"{len(missing)} missing: {', '.join(missing)}"
            raise _bad_file(folder / INDEX, f"{len(names)} shards beside the index", found)
        return [folder / name for name in names]
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    return sorted(folder.glob("*.safetensors"))


def _weight_map(folder: Path) -> dict[str, str]:
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) and Path(name).name == name for name in weight_map.values()
    ):
        raise _bad_file(folder / INDEX, "weight_map: tensor name -> file name in this folder", repr(weight_map)[:200])
    return weight_map


def _check_index(folder: Path, headers: dict[Path, dict[str, Any]]) -> None:
    if not (folder / INDEX).exists():
        return
    for tensor, shard in _weight_map(folder).items():
        if tensor not in headers[folder / shard]:
            raise _bad_file(folder / shard, f"the tensor, as {INDEX} says", "no such tensor", tensor=tensor)


def _read_header(shard: Path) -> dict[str, Any]:
    """Return name -> dtype, shape, data_offsets. Raises WeightsError if the file is shorter than its header says."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length + 8 > size:
            raise _bad_file(shard, f"a header of {length} bytes", f"a file of {size} bytes")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            data_end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _bad_file(shard, "a safetensors header", error) from error
    if 8 + length + data_end > size:
        raise _bad_file(shard, f"{8 + length + data_end} bytes", f"{size} bytes: the file is truncated")
    return dict(header)


def _bad_file(file: Path, expected: object, found: object, *, tensor: str | None = None) -> WeightsError:
    details = {"file": file, "tensor": tensor, "expected": expected, "found": found}
    kept = {label: text for label, text in details.items() if text is not None}
    return WeightsError(f"{file.name} cannot be loaded", kept)
