"""The order of a compiled pass: pieces and attention calls over numbered values. Owns when a value is forgotten."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.compilation.attend_operation import perform
from legato.compilation.piece_operator import CompiledPiece
from legato.compilation.pieces import AttendCall, Piece
from legato.compilation.trace import TracedForward

Part = tuple[Piece, CompiledPiece] | AttendCall
"""A piece with its code, or an attention call."""


@dataclass(frozen=True, slots=True)
class _Value:
    """Stands for a tensor of the pass, by number."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One piece; or an attention call, where ``piece`` is None."""

    piece: CompiledPiece | None
    arguments: tuple[Any, ...]
    results: tuple[int, ...]
    last_read: tuple[int, ...]
    """What no later call reads: the memory of a large step is used again at once."""


class Schedule:
    """A pass that can be run: weights are known, ids and positions come with each step."""

    def __init__(self, traced: TracedForward, parts: Sequence[Part], layers: Mapping[int, AttentionLayer]) -> None:
        self._layers = layers
        numbers = {node: number for number, node in enumerate(traced.graph.graph.nodes)}
        known = dict(zip(traced.placeholders, traced.inputs, strict=True))
        (self._input_ids,) = (numbers[node] for node, given in known.items() if given is traced.input_ids)
        (self._positions,) = (numbers[node] for node, given in known.items() if given is traced.positions)
        steps = (traced.input_ids, traced.positions)
        weights = {
            node: given
            for node, given in known.items()
            if isinstance(given, torch.Tensor) and not any(given is step for step in steps)
        }
        self._start: list[torch.Tensor | None] = [weights.get(node) for node in numbers]
        self._result = numbers[traced.result]
        self._calls = _calls(parts, numbers, kept={*weights, traced.result})

    def run(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        """Return the pass's result for one step, with attention as ``context`` has it."""
        values = self._start.copy()
        values[self._input_ids], values[self._positions] = input_ids, positions
        num_tokens = input_ids.shape[0]
        for call in self._calls:
            given: list[Any] = [values[each.number] if isinstance(each, _Value) else each for each in call.arguments]
            if call.piece is None:
                results: Sequence[torch.Tensor] = (perform(context, self._layers, *given),)
            else:
                results = call.piece(given, num_tokens)
            for number, result in zip(call.results, results, strict=True):
                values[number] = result
            for number in call.last_read:
                values[number] = None
        hidden = values[self._result]
        assert hidden is not None
        return hidden


def _calls(parts: Sequence[Part], numbers: Mapping[fx.Node, int], kept: set[fx.Node]) -> list[_Call]:
    """Return the calls in order, each with the values that nothing but ``kept`` reads after it."""
    calls: list[_Call] = []
    read_later = {numbers[node] for node in kept}
    for part in reversed(parts):
        piece: CompiledPiece | None
        given: Sequence[Any]
        results: Sequence[fx.Node]
        if isinstance(part, AttendCall):
            piece, given, results = None, part.node.args, (part.node,)
        else:
            piece, given, results = part[1], part[0].inputs, part[0].outputs
        arguments = tuple(_Value(numbers[each]) if isinstance(each, fx.Node) else each for each in given)
        used = {each.number for each in arguments if isinstance(each, _Value)} | {numbers[node] for node in results}
        calls.append(
            _Call(
                piece=piece,
                arguments=arguments,
                results=tuple(numbers[node] for node in results),
                last_read=tuple(sorted(used - read_later)),
            )
        )
        read_later |= used
    return calls[::-1]
