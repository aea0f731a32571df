"""A recorded list of tensor operations, compiled to straight-line Python. Owns registers and their lifetimes.

The recorder appends operations; :meth:`ProgramBuilder.build` writes one Python function whose local variables are the
registers: an intermediate is a local that is deleted after its last use, a persistent tensor is a global of the
function. Nothing is looked up, unpacked or decided at replay.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Register:
    """Stands for an intermediate tensor, by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded call; tensors in ``args`` are registers or persistent."""

    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    """Nested lists of registers, or None where the call's result is not used."""


@dataclass(slots=True)
class ProgramBuilder:
    """Collects operations and writes the replay function."""

    operations: list[Operation] = field(default_factory=list)
    _globals: dict[str, Any] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def append(self, operation: Operation) -> None:
        """Add one operation."""
        self.operations.append(operation)

    def build(self) -> Callable[[], None]:
        """Return a function without arguments that runs all operations in order."""
        last_use = self._last_uses()
        lines = []
        for index, operation in enumerate(self.operations):
            arguments = [self._expression(value) for value in operation.args]
            arguments += [f"{name}={self._expression(value)}" for name, value in operation.kwargs.items()]
            call = f"{self._global(operation.function)}({', '.join(arguments)})"
            target = self._target(operation.result)
            lines.append(f"{target} = {call}" if target else call)
            dead = sorted(number for number, last in last_use.items() if last == index)
            if dead:
                lines.append("del " + ", ".join(f"r{number}" for number in dead))
        source = "def replay():\n" + "\n".join(f"    {line}" for line in lines or ["pass"])
        exec(compile(source, "<recorded graph>", "exec"), self._globals)
        replay: Callable[[], None] = self._globals["replay"]
        return replay

    def _last_uses(self) -> dict[int, int]:
        """Return, per register, the index of the last operation that names it."""
        last: dict[int, int] = {}
        for index, operation in enumerate(self.operations):
            for number in _registers((operation.args, operation.kwargs, operation.result)):
                last[number] = index
        return last

    def _target(self, result: Any) -> str:
        if isinstance(result, Register):
            return f"r{result.number}"
        if isinstance(result, (list, tuple)):
            parts = [self._target(part) or "_" for part in result]
            return "[" + ", ".join(parts) + "]" if parts else ""
        return ""

    def _expression(self, value: Any) -> str:
        if isinstance(value, Register):
            return f"r{value.number}"
        if isinstance(value, list):
            return "[" + ", ".join(self._expression(item) for item in value) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self._expression(item) + ", " for item in value) + ")"
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        return self._global(value)

    def _global(self, value: Any) -> str:
        """Return the global name of a persistent tensor, a function, or a constant that has no literal."""
        name = self._names.get(id(value))
        if name is None:
            name = f"g{len(self._names)}"
            self._names[id(value)] = name
            self._globals[name] = value
        return name


def _registers(value: Any) -> list[int]:
    """Return the numbers of all registers in a nested value."""
    if isinstance(value, Register):
        return [value.number]
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in _registers(item)]
    if isinstance(value, dict):
        return [number for item in value.values() for number in _registers(item)]
    return []


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return all tensors in a nested value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []
