"""A traced graph -> its pieces between attention calls. Owns the cut, and which pieces are the same.

A piece is a graph of its own: what it reads from before the cut are its inputs, weights among them, and what is read
after it are its outputs. So the pieces of different layers are one graph over different inputs.
"""

import operator
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from legato.compilation.attend_operation import ATTEND

_SIZES = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)
_CHECKS = (torch._check, torch.ops.aten._assert_scalar.default)
"""Of sizes, and of nothing else: a pass that reads a value on the host has been refused."""
_VALUE = "example_value"
"""Where the tracer leaves what a node gives, as a tensor without memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is computed between two attention calls. ``inputs`` and ``outputs`` are values of the whole graph."""

    graph: fx.GraphModule
    """Its placeholders are the sizes, then the inputs; it returns a tuple."""
    sizes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    structure: Hashable
    """Equal for pieces that compute the same from inputs of the same shapes, strides, types and devices."""

    @property
    def example_inputs(self) -> list[Any]:
        """Symbolic sizes, then the inputs as tensors without memory."""
        return [node.meta[_VALUE] for node in (*self.sizes, *self.inputs)]


@dataclass(frozen=True, slots=True)
class AttendCall:
    """An attention call between two pieces."""

    node: fx.Node


def split(whole: fx.GraphModule) -> tuple[Piece | AttendCall, ...]:
    """Return the pieces and attention calls of ``whole``, in order."""
    return tuple(
        AttendCall(nodes[0]) if _is_attend(nodes[0]) else _piece(whole, nodes) for nodes in _segments(whole.graph)
    )


def _segments(graph: fx.Graph) -> list[list[fx.Node]]:
    """Return the computations, cut before and after each attention call.

    An element of a tuple stays with the tuple: tensors alone cross a cut. Sizes belong to no segment.
    """
    segments: list[list[fx.Node]] = []
    home: dict[object, list[fx.Node]] = {}
    running: list[fx.Node] | None = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or _is_size(node):
            continue
        if _is_attend(node):
            segments.append([node])
            running = None
        elif node.target is operator.getitem and node.args[0] in home:
            home[node] = home[node.args[0]]
            home[node].append(node)
        else:
            if running is None:
                running = []
                segments.append(running)
            running.append(node)
            home[node] = running
    return segments


def _piece(whole: fx.GraphModule, nodes: Sequence[fx.Node]) -> Piece:
    """Return the graph of ``nodes``. A size that they need is worked out anew, since no size crosses a cut."""
    inside = set(nodes)
    graph = fx.Graph()
    sources = dict.fromkeys(source for node in nodes for source in _sources(node, inside))
    sizes = tuple(source for source in sources if _is_size(source))
    inputs = tuple(source for source in sources if not _is_size(source))
    copies: dict[fx.Node, fx.Node] = {}
    for source in (*sizes, *inputs):
        copies[source] = graph.placeholder(source.name)
        copies[source].meta = source.meta.copy()

    def copy(node: fx.Node) -> fx.Node:
        if node not in copies:
            copies[node] = graph.node_copy(node, copy)
        return copies[node]

    for node in nodes:
        copy(node)
    outputs = [node for node in nodes if any(user not in inside for user in _readers(node))]
    graph.output(tuple(copies[node] for node in outputs))
    piece = fx.GraphModule(whole, graph, class_name="Piece")
    return Piece(graph=piece, sizes=sizes, inputs=inputs, outputs=tuple(outputs), structure=_structure(piece))


def _sources(node: fx.Node, inside: set[fx.Node]) -> Iterator[fx.Node]:
    """Yield what ``node`` reads from outside, through sizes."""
    for source in node.all_input_nodes:
        if source in inside:
            continue
        if _is_size(source) and source.op != "placeholder":
            yield from _sources(source, inside)
        else:
            yield source


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads ``node``, through sizes."""
    for user in node.users:
        if _is_size(user):
            yield from _readers(user)
        else:
            yield user


def _structure(piece: fx.GraphModule) -> Hashable:
    """Return what two pieces have in common if one compilation serves both."""
    numbers: dict[fx.Node, int] = {}
    lines: list[Hashable] = []
    for number, node in enumerate(piece.graph.nodes):
        numbers[node] = number
        arguments = repr(fx.node.map_arg((node.args, node.kwargs), lambda given: f"%{numbers[given]}"))
        if node.op == "placeholder":
            lines.append(_description(node))
        elif node.op == "get_attr":
            lines.append(id(operator.attrgetter(str(node.target))(piece)))
        else:
            lines.append((node.op, node.target if node.op != "output" else "", arguments))
    return tuple(lines)


def _description(placeholder: fx.Node) -> Hashable:
    value = placeholder.meta[_VALUE]
    if not isinstance(value, torch.Tensor):
        return str(value)
    return str(value.shape), str(value.stride()), value.dtype, value.device


def _is_attend(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in (ATTEND, ATTEND.overloadpacket)


def _is_size(node: fx.Node) -> bool:
    """Return whether a node gives a size, or checks one."""
    return isinstance(node.meta.get(_VALUE), _SIZES) or node.target in _CHECKS
