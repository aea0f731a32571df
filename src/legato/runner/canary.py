"""What a graph is proven with. Owns the starting point of a proving run, its poison, and what is compared after it.

An eager run and a replay start from equal rows and equal cache contents, so that only the graph can make them differ.
The contents are noise, not what an earlier run stored: a replay that stores to the wrong place then reads noise.
"""

from collections.abc import Mapping

import torch

from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode
from legato.runner.attention_plans import prepare_made_up
from legato.runner.round_canary import install_round, round_results
from legato.runner.round_program import RoundProgram
from legato.runner.step_program import StepProgram
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticBatch, install


class Canary:
    """One made-up batch, run twice over one step program."""

    def __init__(
        self,
        program: StepProgram,
        key: GraphKey,
        shape: StepShape,
        batch: SyntheticBatch,
        own_shape: StepShape | None,
    ) -> None:
        """``own_shape``: what attention between segments is given, in both runs; None: it has the key's ``shape``."""
        self._program = program
        self._key = key
        self._shape = shape
        self._batch = batch
        self._attended = own_shape or shape

    def install(self, *, poisoned: bool) -> None:
        """Set rows, cache and inputs for a run; ``poisoned``: what only padding may read shows wherever it leaks to."""
        state, buffers = self._program.state, self._program.buffers
        state.reset()
        self._fill_blocks()
        self._leave_behind(poisoned=poisoned)
        install(self._batch, self._shape, buffers, state)
        if isinstance(self._program, RoundProgram):
            install_round(self._program, self._key, self._shape, self._batch, poisoned=poisoned)
        state.next_tokens[state.null_row] = self._last_token if poisoned else 0
        for cache in self._program.caches.values():
            cache.key[0].fill_(float("nan") if poisoned else 0.0)
            cache.value[0].fill_(float("nan") if poisoned else 0.0)
        prepare_made_up(self._program.planner, self._attended, self._batch)

    def results(self) -> dict[str, torch.Tensor]:
        """Return what the run left for the real requests, and all rows: those of others must be untouched."""
        program, num_reqs, num_tokens = self._program, len(self._batch.rows), len(self._batch.token_ids)
        real_rows = slice(0, program.state.null_row)
        results = {
            "next_tokens": program.state.next_tokens[real_rows].clone(),
            "num_computed": program.state.num_computed[real_rows].clone(),
        }
        if isinstance(program, RoundProgram):
            return results | round_results(program, self._key, num_reqs=num_reqs, num_tokens=num_tokens)
        if self._key.mode is not GraphMode.FULL:
            return results | {"hidden": program.buffers.hidden[:num_tokens].clone()}
        if self._key.sampler is not None:
            results["sampled"] = program.buffers.sampled[:num_reqs].clone()
        return results | {"logits": program.buffers.logits[:num_reqs].clone()}

    @property
    def _last_token(self) -> int:
        return self._program.buffers.logits.shape[1] - 1

    def _fill_blocks(self) -> None:
        """Give the batch's blocks the same noise before each run, drawn where it is needed."""
        device = self._program.state.block_table.device
        block_ids = torch.tensor([block for blocks in self._batch.blocks for block in blocks], device=device)
        noise: dict[tuple[torch.Size, torch.dtype], torch.Tensor] = {}
        for cache in self._program.caches.values():
            for tensor in (cache.key, cache.value):
                form = torch.Size((len(block_ids), *tensor.shape[1:])), tensor.dtype
                if form not in noise:
                    generator = torch.Generator(device).manual_seed(0)
                    noise[form] = torch.randn(form[0], generator=generator, dtype=form[1], device=device)
                tensor.index_copy_(0, block_ids, noise[form])

    def _leave_behind(self, *, poisoned: bool) -> None:
        """Fill the staging arrays as an earlier batch would: with a row that is none of this one's, on its first block.

        Padding that is not rewritten then advances that row, or stores over the keys of the first request.
        """
        buffers, state = self._program.buffers, self._program.state
        spare = next(row for row in range(state.null_row + 1) if row not in self._batch.rows)
        state.block_table[spare] = self._batch.blocks[0][0] if poisoned and spare != state.null_row else 0
        for buffer in buffers.inputs:
            buffer.held = None
        buffers.rows.host_np[:] = spare if poisoned else buffers.rows.pad_value
        buffers.token_rows.host_np[:] = spare if poisoned else buffers.token_rows.pad_value
        buffers.input_ids.host_np[:] = self._last_token if poisoned else buffers.input_ids.pad_value


def difference(expected: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> str | None:
    """Return what differs between two results, in words; None: nothing."""
    for name, tensor in expected.items():
        if not torch.equal(tensor, given[name]):
            most = (tensor.float() - given[name].float()).abs().max().item()
            return f"{name} of the replay differs from the eager step by up to {most:.3g}"
    return None
