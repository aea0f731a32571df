"""What the device computes in a round of speculative decoding, written once. Owns the order of its parts.

``whole``    inputs, target, logits, sampling and acceptance, the drafter's passes, next inputs: one full graph; without
             a sampler it ends at the logits
``forward``  inputs and target, hidden states left in buffers: one piecewise graph, or eager
``head``     logits, sampling and acceptance after ``forward``: always eager; ``sample`` is its end
``extend``   the drafter's pass over the step's tokens, its state left in a buffer
``propose``  the drafter's passes over the requests, and the next inputs

Rows change at the end of ``propose`` alone: until then all parts see them as they were before the step.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from legato.attention.protocol import AttentionBackend, AttentionContext, AttentionMetadata
from legato.flow.scheduled_batch import Admission
from legato.graphs.modes import SamplerVariant, Stage
from legato.graphs.segments import SegmentedCapture
from legato.kernels.token_mask import allowed_only
from legato.kvcache.storage import LayerCache
from legato.models.causal_lm import AuxiliaryStates
from legato.runner.attention_contexts import BreakingAttention, InlineAttention
from legato.runner.device_state import DeviceState
from legato.runner.drafter import Drafter, RoundRequests, RoundTokens, TokenPass
from legato.runner.inputs import RequestInputs, TokenInputs, request_inputs, token_inputs
from legato.runner.round_buffers import RoundBuffers
from legato.runner.round_inputs import (
    SampledPlaces,
    following_ids,
    round_token_inputs,
    sampled_places,
    single_token_metadata,
    token_places,
)
from legato.runner.step_program import CausalModel, StepProgram, TokenMasks
from legato.runner.step_shape import StepShape
from legato.sampling.acceptance import SyntheticAcceptance, accepted_run, matching_drafts, take_drafts
from legato.sampling.sampler import sample
from legato.sampling.state import SamplingState

_Contexts = Callable[[AttentionMetadata], AttentionContext]


class RoundProgram(StepProgram):
    """A model with its drafter, their cache, buffers and rows."""

    buffers: RoundBuffers

    def __init__(
        self,
        *,
        model: CausalModel,
        backend: AttentionBackend,
        caches: Mapping[int, LayerCache],
        buffers: RoundBuffers,
        state: DeviceState,
        sampling: SamplingState,
        block_size: int,
        drafter: Drafter,
        synthetic: SyntheticAcceptance | None,
        max_position: int,
    ) -> None:
        """``synthetic``: what decides instead of the target; ``max_position``: the last that the model has."""
        super().__init__(
            model=model,
            backend=backend,
            caches=caches,
            buffers=buffers,
            state=state,
            sampling=sampling,
            block_size=block_size,
        )
        self.drafter = drafter
        self.synthetic = synthetic
        self._max_position = max_position

    @property
    def extends(self) -> bool:
        """Whether the drafter has a pass over the step's tokens."""
        return self.drafter.state_size > 0

    def admit(self, admission: Admission) -> None:
        """Tell the drafter of a request that has taken its row."""
        self.drafter.admit(admission.row, (*admission.request.prompt_token_ids, *admission.output_token_ids))

    def forget(self) -> None:
        """Empty what the drafter keeps of requests, in place."""
        for tensor in self.drafter.tensors().values():
            tensor.zero_()

    def run(self, stage: Stage, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Run one of a round's stages eagerly, or capture it cut at each attention call where ``segments``."""
        stages = {Stage.EXTEND: self.extend, Stage.DRAFT: self.propose}
        stages.get(stage, self.forward)(shape, segments)

    def whole(self, shape: StepShape, sampler: SamplerVariant | None) -> None:
        """Compute a round; with ``sampler`` None it ends at the logits."""
        requests = request_inputs(shape, self.buffers, self.state)
        tokens = self._tokens(shape, requests)
        extends = self.extends and not _is_plain(shape)
        hidden = self._target(tokens, self._contexts(None), for_drafter=extends)
        places = self._places(shape, requests)
        self._logits(hidden, places)
        if sampler is None:
            if extends:
                self.buffers.hidden[: shape.num_tokens].copy_(hidden)
            return
        self._accept(shape, requests, places, sampler)
        if extends:
            self._extend(shape, requests, tokens, hidden, self._contexts(None))
        self._propose(shape, self._contexts(None))

    def forward(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Leave the hidden states of all tokens in their buffers, cut at each attention call where ``segments``."""
        tokens = self._tokens(shape, request_inputs(shape, self.buffers, self.state))
        self.buffers.hidden[: shape.num_tokens].copy_(self._target(tokens, self._contexts(segments)))

    def head(self, shape: StepShape, sampler: SamplerVariant | None, masks: TokenMasks | None = None) -> None:
        """Compute logits from the buffer of hidden states, sample, and find which drafts stand."""
        requests = request_inputs(shape, self.buffers, self.state)
        places = self._places(shape, requests)
        self._logits(self.buffers.hidden[: shape.num_tokens], places)
        if sampler is not None:
            self._accept(shape, requests, places, sampler, masks)

    def sample(self, shape: StepShape, variant: SamplerVariant, masks: TokenMasks | None = None) -> None:
        """Sample from the logits in their buffer, and find which drafts stand."""
        requests = request_inputs(shape, self.buffers, self.state)
        self._accept(shape, requests, self._places(shape, requests), variant, masks)

    def extend(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Run the drafter over the step's tokens, whose hidden states are in the buffers."""
        requests = request_inputs(shape, self.buffers, self.state)
        hidden = self.buffers.hidden[: shape.num_tokens]
        self._extend(shape, requests, self._tokens(shape, requests), hidden, self._contexts(segments))

    def propose(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Make ``shape.num_drafts`` drafts for each of ``shape.num_reqs`` requests, and write the next inputs."""
        self._propose(shape, self._contexts(segments))

    def _contexts(self, segments: SegmentedCapture | None) -> _Contexts:
        if segments is None:
            return lambda metadata: InlineAttention(self.backend, self.caches, metadata)
        return lambda metadata: BreakingAttention(self.backend, self.caches, metadata, segments)

    def _tokens(self, shape: StepShape, requests: RequestInputs) -> TokenInputs:
        if shape.query_len == 1:
            tokens = token_inputs(shape, requests, self.buffers, self.state, block_size=self._block_size)
            return replace(tokens, positions=tokens.positions.clamp(max=self._max_position))
        return round_token_inputs(
            shape,
            requests,
            self.buffers,
            self.state,
            block_size=self._block_size,
            max_position=self._max_position,
        )

    def _places(self, shape: StepShape, requests: RequestInputs) -> SampledPlaces:
        width = self.buffers.sampled.shape[1] if shape.query_len is None else shape.query_len
        return sampled_places(shape, requests, self.buffers, self.state, width)

    def _target(self, tokens: TokenInputs, contexts: _Contexts, *, for_drafter: bool = True) -> torch.Tensor:
        """Return the target's hidden states; those that the drafter reads besides are left in their buffers."""
        auxiliary = None
        if for_drafter and self.drafter.auxiliary_layers:
            out = self.buffers.auxiliary[: tokens.input_ids.shape[0]]
            auxiliary = AuxiliaryStates(layers=self.drafter.auxiliary_layers, out=out)
        return self.model(tokens.input_ids, tokens.positions, contexts(tokens.metadata), auxiliary)

    def _logits(self, hidden: torch.Tensor, places: SampledPlaces) -> None:
        chosen = hidden if places.tokens is None else hidden.index_select(0, places.tokens)
        self.model.compute_logits(chosen, out=self.buffers.logits[: chosen.shape[0]])

    def _accept(
        self,
        shape: StepShape,
        requests: RequestInputs,
        places: SampledPlaces,
        variant: SamplerVariant,
        masks: TokenMasks | None = None,
    ) -> None:
        """Sample at every place; leave the new tokens of each request, and where they end.

        ``masks`` are for the first place of a request, behind which none of a guided one counts.
        """
        buffers, rows = self.buffers, requests.rows
        num_reqs, width = places.positions.shape
        token_rows = rows.unsqueeze(1).expand(num_reqs, width).reshape(-1)
        logits = buffers.logits[: num_reqs * width]
        if masks is not None:
            logits = allowed_only(logits, masks.requests * width, masks.bits)
        sampled = sample(logits, token_rows, places.positions.reshape(-1), self.sampling, variant)
        sampled = sampled.view(num_reqs, width)
        if shape.query_len is None:
            given = buffers.given_next.device[:num_reqs].unsqueeze(1)
            sampled = torch.cat([torch.where(given < 0, sampled[:, :1], given), sampled[:, 1:]], dim=1)
        drafts = self.state.drafts.index_select(0, rows)[:, : width - 1]
        if self.synthetic is None:
            num_accepted = accepted_run(matching_drafts(sampled, drafts, places.num_drafts))
        else:
            seeds = self.sampling.gather(rows).seed
            stand = self.synthetic.accepted(seeds, places.positions[:, : width - 1], places.num_drafts)
            num_accepted = accepted_run(stand)
            sampled = take_drafts(sampled, drafts, num_accepted)
        buffers.sampled[:num_reqs, :width].copy_(sampled)
        buffers.num_sampled[:num_reqs].copy_(num_accepted + 1)
        buffers.next_positions[:num_reqs].copy_(places.positions[:, 0] + num_accepted)
        buffers.last_places[:num_reqs].copy_(places.starts + num_accepted)

    def _extend(
        self,
        shape: StepShape,
        requests: RequestInputs,
        tokens: TokenInputs,
        hidden: torch.Tensor,
        contexts: _Contexts,
    ) -> None:
        buffers = self.buffers
        extended = self.drafter.extend(
            RoundTokens(
                input_ids=tokens.input_ids,
                next_ids=following_ids(shape, requests, tokens.input_ids, buffers, self.state),
                positions=tokens.positions,
                hidden=hidden,
                auxiliary=buffers.auxiliary[: shape.num_tokens],
                context=contexts(tokens.metadata),
                places=lambda: token_places(shape, requests.rows, buffers),
            )
        )
        buffers.extended[: shape.num_tokens].copy_(extended)

    def _propose(self, shape: StepShape, contexts: _Contexts) -> None:
        buffers, state, num_reqs = self.buffers, self.state, shape.num_reqs
        rows = buffers.rows.device[:num_reqs]
        sampled, num_sampled = buffers.sampled[:num_reqs], buffers.num_sampled[:num_reqs]
        next_tokens = sampled.gather(1, num_sampled.unsqueeze(1) - 1).squeeze(1)
        # A padded request may find what an earlier batch left; at length 0 it costs no attention.
        next_positions = buffers.next_positions[:num_reqs].masked_fill(rows == state.null_row, 0)
        last_places = buffers.last_places[:num_reqs]
        if not shape.num_drafts and self.extends:
            state.commit(rows, next_positions, next_tokens)
            return
        drafts = self.drafter.propose(
            RoundRequests(
                num_drafts=shape.num_drafts,
                rows=rows,
                sampled=sampled,
                num_sampled=num_sampled,
                next_tokens=next_tokens,
                next_positions=next_positions,
                state=buffers.extended.index_select(0, last_places) if self.extends else None,
                token_pass=self._token_passes(shape, rows, next_positions, contexts),
            )
        )
        state.drafts[:, : shape.num_drafts].index_copy_(0, rows, drafts)
        state.commit(rows, next_positions, next_tokens)

    def _token_passes(
        self, shape: StepShape, rows: torch.Tensor, next_positions: torch.Tensor, contexts: _Contexts
    ) -> Callable[[int], TokenPass]:
        block_table = self.state.block_table.index_select(0, rows) if self.extends else None

        def token_pass(index: int) -> TokenPass:
            assert block_table is not None, "a drafter without layers asked for attention"
            positions = next_positions + index
            metadata = single_token_metadata(
                rows, positions, block_table, self.state, shape.key_ints, block_size=self._block_size
            )
            return TokenPass(positions=positions.clamp(max=self._max_position), context=contexts(metadata))

        return token_pass


def _is_plain(shape: StepShape) -> bool:
    """Return whether a step is plain decoding, which a drafter has no part in."""
    return shape.query_len == 1 and not shape.num_drafts
