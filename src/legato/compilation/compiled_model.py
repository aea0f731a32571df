"""A model whose forward pass is compiled pieces with attention calls between them.

To the runner it is a model like any other: attention goes through the context of the step, which calls a backend where
it stands or ends a graph segment there. Owns the order of compiling, and that equal pieces are compiled once.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

from legato.attention.protocol import AttentionContext
from legato.compilation.piece_operator import CompiledPiece
from legato.compilation.pieces import AttendCall, Piece, split
from legato.compilation.schedule import Schedule
from legato.compilation.trace import trace
from legato.models.causal_lm import AuxiliaryStates, CausalLM

PieceCompiler = Callable[[Piece], Callable[..., Sequence[torch.Tensor]]]
"""Makes a function of a piece: its sizes, then its inputs -> its outputs."""
PieceProgress = Callable[[int, int], None]
"""Told (pieces compiled, pieces to compile)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReport:
    """What compiling took."""

    num_pieces: int
    num_compiled: int
    """Different ones."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.num_compiled} different pieces of {self.num_pieces} in {self.seconds:.1f} s"


class CompiledModel:
    """Implements the runner's ``CausalModel``, over the weights of the model that it was made from."""

    def __init__(self, model: CausalLM, schedule: Schedule, report: CompileReport) -> None:
        self.report = report
        self._model = model
        self._schedule = schedule

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
        auxiliary: AuxiliaryStates | None = None,
    ) -> torch.Tensor:
        """Map ``input_ids`` and ``positions`` [num_tokens] int64 to hidden states [num_tokens, hidden_size].

        Inner states are inside of pieces: an engine whose drafter reads them is not built over this model.
        """
        assert auxiliary is None, "inner states were asked of a compiled model"
        return self._schedule.run(input_ids, positions, context)

    def compute_logits(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map ``hidden`` as the model itself does: one product, in which there is nothing to fuse."""
        return self._model.compute_logits(hidden, out)


@torch.inference_mode()
def compile_model(
    model: CausalLM,
    device: torch.device,
    compiler: PieceCompiler,
    *,
    max_num_tokens: int,
    progress: PieceProgress = lambda done, total: None,
) -> CompiledModel:
    """Return ``model`` with what lies between its attention calls compiled by ``compiler``, once for all sizes.

    A step has 1 to ``max_num_tokens`` tokens. Raises ModelError where the model cannot be traced, or a piece of it
    cannot be compiled.
    """
    started = time.perf_counter()
    traced = trace(model, device, max_num_tokens)
    parts = split(traced.graph)
    compiled: dict[Hashable, CompiledPiece] = {}
    pieces = [part for part in parts if isinstance(part, Piece)]
    different = {piece.structure: piece for piece in pieces}
    progress(0, len(different))
    for structure, piece in different.items():
        compiled[structure] = CompiledPiece(compiler(piece), len(piece.sizes))
        progress(len(compiled), len(different))
    schedule = Schedule(
        traced,
        [part if isinstance(part, AttendCall) else (part, compiled[part.structure]) for part in parts],
        {layer.index: layer for layer in model.attention_layers},
    )
    seconds = time.perf_counter() - started
    report = CompileReport(num_pieces=len(pieces), num_compiled=len(different), seconds=seconds)
    return CompiledModel(model, schedule, report)
