"""The GGUF container: metadata and the place of each tensor. Knows nothing of models or of quantised formats' insides.

Layout after https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The gguf
package's reader makes an array per string, seconds for a vocabulary; this one takes a twentieth of that.
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from legato.errors import WeightsError

_DEFAULT_ALIGNMENT = 32
_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensor:
    """One tensor of the file, as stored."""

    name: str
    shape: tuple[int, ...]
    """Outermost dimension first, as torch has it."""
    type: GGMLQuantizationType
    offset: int
    """Bytes from the beginning of the file."""
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFFile:
    """A mapped file: its metadata, and its tensors by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]
    data: mmap.mmap

    def raw(self, tensor: GGUFTensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the stored bytes of a tensor, not copied. [num_bytes] uint8"""
        return np.frombuffer(self.data, dtype=np.uint8, count=tensor.num_bytes, offset=tensor.offset)


def open_gguf(path: Path) -> GGUFFile:
    """Map a GGUF file. Raises WeightsError, naming file, expected and found, for one that is damaged.

    The last file is remembered, as configuration, tokenizer and weights each ask for it.
    """
    status = path.stat()
    return _open(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _open(path: Path, _modified_ns: int, size: int) -> GGUFFile:
    if size == 0:
        raise _damaged(path, "a GGUF file", "an empty file")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _parse(path, data)
    except (struct.error, IndexError, OverflowError) as error:
        raise _damaged(path, "a complete GGUF header", f"the file ends inside it, at {size} bytes") from error
    except (ValueError, KeyError) as error:
        raise _damaged(path, "a valid GGUF header", error) from error


def _parse(path: Path, data: mmap.mmap) -> GGUFFile:
    cursor = _Cursor(data)
    magic, version = cursor.take("4sI")
    if magic != b"GGUF":
        raise _damaged(path, "the magic bytes b'GGUF'", repr(magic))
    if version not in (2, 3):
        raise _damaged(path, "version 2 or 3, little-endian", f"version {version}")
    num_tensors, num_fields = cursor.take("QQ")
    metadata = {cursor.string(): cursor.value() for _ in range(num_fields)}
    infos = [_tensor_info(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise _damaged(path, "general.alignment above 0", repr(alignment))
    start = -(-cursor.offset // alignment) * alignment
    tensors = {}
    for name, shape, kind, offset in infos:
        tensor = _place(path, name, shape, kind, start + offset)
        if tensor.offset + tensor.num_bytes > len(data):
            found = f"the file ends at byte {len(data)}"
            raise _damaged(path, f"data up to byte {tensor.offset + tensor.num_bytes}", found, tensor=name)
        tensors[name] = tensor
    return GGUFFile(path=path, metadata=metadata, tensors=tensors, data=data)


def _tensor_info(cursor: "_Cursor") -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string()
    (num_dims,) = cursor.take("I")
    if num_dims > 8:
        raise ValueError(f"tensor {name} has {num_dims} dimensions")
    shape = cursor.take(f"{num_dims}Q")
    kind, offset = cursor.take("IQ")
    return name, tuple(reversed(shape)), kind, offset


def _place(path: Path, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GGUFTensor:
    try:
        type_ = GGMLQuantizationType(kind)
    except ValueError:
        raise _damaged(path, "a tensor type that the gguf package knows", f"type {kind}", tensor=name) from None
    block_elements, block_bytes = GGML_QUANT_SIZES[type_]
    if not shape or shape[-1] % block_elements:
        raise _damaged(path, f"rows of a multiple of {block_elements} ({type_.name})", f"shape {shape}", tensor=name)
    num_bytes = math.prod(shape) // block_elements * block_bytes
    return GGUFTensor(name=name, shape=shape, type=type_, offset=offset, num_bytes=num_bytes)


class _Cursor:
    """A reading position in the header."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.offset = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        layout = "<" + layout
        values = struct.unpack_from(layout, self.data, self.offset)
        self.offset += struct.calcsize(layout)
        return values

    def string(self) -> str:
        (length,) = self.take("Q")
        return self._bytes(length).decode("utf-8", errors="replace")

    def value(self) -> Any:
        (kind,) = self.take("I")
        return self._value(GGUFValueType(kind))

    def _value(self, kind: GGUFValueType) -> Any:
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])[0]
        if kind is GGUFValueType.STRING:
            return self.string()
        item, length = self.take("IQ")
        if length > len(self.data):
            raise IndexError("array longer than the file")
        item_kind = GGUFValueType(item)
        if item_kind in _SCALARS:
            return list(self.take(f"{length}{_SCALARS[item_kind]}"))
        if item_kind is GGUFValueType.STRING:
            return self._strings(length)
        return [self._value(item_kind) for _ in range(length)]

    def _strings(self, count: int) -> list[str]:
        """Read many strings: a vocabulary's loop, kept tight."""
        data, offset = self.data, self.offset
        read_length: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            (length,) = read_length(data, offset)
            offset += 8 + length
            strings.append(data[offset - length : offset].decode("utf-8", errors="replace"))
        if offset > len(data):
            raise IndexError("string beyond the file's end")
        self.offset = offset
        return strings

    def _bytes(self, length: int) -> bytes:
        if self.offset + length > len(self.data):
            raise IndexError("string beyond the file's end")
        self.offset += length
        return self.data[self.offset - length : self.offset]


def _damaged(path: Path, expected: object, found: object, *, tensor: str | None = None) -> WeightsError:
    details = {"file": path, "tensor": tensor, "expected": expected, "found": found}
    return WeightsError(f"{path.name} is damaged", {label: text for label, text in details.items() if text is not None})
