"""What the device computes in a round of speculative decoding, written once. Owns the order of its parts.

``whole``    inputs, target, logits, sampling and acceptance, the drafter's passes, next inputs: one full graph; without
             a sampler it ends at the logits
``forward``  inputs and target, hidden states left in buffers: one piecewise graph, or eager
``head``     logits, sampling and acceptance after ``forward``: always eager; ``sample`` is its end
``extend``   the drafter's pass over the step's tokens, its state left in a buffer
``propose``  the drafter's passes over the requests, and the next inputs

Rows change at the end of ``propose`` alone: until then all parts see them as they were before the step.
"""

from collections.abc import Mapping

import torch

from legato.attention.protocol import AttentionBackend
from legato.flow.scheduled_batch import Admission
from legato.graphs.modes import SamplerVariant, Stage
from legato.graphs.segments import SegmentedCapture
from legato.kernels.acceptance import Coins, Verified, accept
from legato.kernels.draft_inputs import draft_inputs
from legato.kernels.token_mask import allowed_only
from legato.kvcache.storage import LayerCache
from legato.models.causal_lm import AuxiliaryStates
from legato.runner.attention_contexts import Contexts
from legato.runner.device_state import DeviceState
from legato.runner.drafter import Drafter, RoundRequests, RoundTokens, TokenPass
from legato.runner.inputs import RequestInputs, TokenInputs, token_inputs
from legato.runner.round_buffers import RoundBuffers
from legato.runner.round_inputs import (
    SampledPlaces,
    following_ids,
    pass_metadata,
    round_token_inputs,
    sampled_places,
    token_places,
)
from legato.runner.step_program import CausalModel, StepProgram, TokenMasks
from legato.runner.step_shape import StepShape
from legato.sampling.acceptance import SyntheticAcceptance
from legato.sampling.sampler import sample
from legato.sampling.state import SamplingState


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
        """``synthetic``: what decides instead of the target."""
        super().__init__(
            model=model,
            backend=backend,
            caches=caches,
            buffers=buffers,
            state=state,
            sampling=sampling,
            block_size=block_size,
            max_position=max_position,
        )
        self.drafter = drafter
        self.synthetic = synthetic

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
        requests = self._requests(shape)
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
        extended = self.buffers.extended
        if extends:
            extended = self._extend(shape, requests, tokens, hidden, self._contexts(None))
        self._propose(shape, extended, self._contexts(None))

    def forward(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Leave the hidden states of all tokens in their buffers, cut at each attention call where ``segments``."""
        tokens = self._tokens(shape, self._requests(shape))
        self.buffers.hidden[: shape.num_tokens].copy_(self._target(tokens, self._contexts(segments)))

    def head(self, shape: StepShape, sampler: SamplerVariant | None, masks: TokenMasks | None = None) -> None:
        """Compute logits from the buffer of hidden states, sample, and find which drafts stand."""
        requests = self._requests(shape)
        places = self._places(shape, requests)
        self._logits(self.buffers.hidden[: shape.num_tokens], places)
        if sampler is not None:
            self._accept(shape, requests, places, sampler, masks)

    def sample(self, shape: StepShape, variant: SamplerVariant, masks: TokenMasks | None = None) -> None:
        """Sample from the logits in their buffer, and find which drafts stand."""
        requests = self._requests(shape)
        self._accept(shape, requests, self._places(shape, requests), variant, masks)

    def extend(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Run the drafter over the step's tokens, whose hidden states are in the buffers."""
        requests = self._requests(shape)
        hidden = self.buffers.hidden[: shape.num_tokens]
        extended = self._extend(shape, requests, self._tokens(shape, requests), hidden, self._contexts(segments))
        self.buffers.extended[: shape.num_tokens].copy_(extended)

    def propose(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Make ``shape.num_drafts`` drafts for each of ``shape.num_reqs`` requests, and write the next inputs."""
        self._propose(shape, self.buffers.extended, self._contexts(segments))

    def _tokens(self, shape: StepShape, requests: RequestInputs) -> TokenInputs:
        if requests.uniform is not None:
            return token_inputs(shape, requests, self.buffers, self.state, block_size=self._block_size)
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

    def _target(self, tokens: TokenInputs, contexts: Contexts, *, for_drafter: bool = True) -> torch.Tensor:
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
        rows, (num_reqs, width) = requests.rows, places.positions.shape
        logits = self.buffers.logits[: num_reqs * width]
        if masks is not None:
            logits = allowed_only(logits, masks.requests * width, masks.bits)
        # A greedy draw asks for no row.
        token_rows = rows if variant is SamplerVariant.GREEDY else rows.unsqueeze(1).expand(num_reqs, width).reshape(-1)
        sampled = sample(logits, token_rows, places.positions.reshape(-1), self.sampling, variant)
        verified = Verified(
            sampled=sampled.view(num_reqs, width),
            given=self.buffers.given_next.device[:num_reqs] if shape.query_len is None else None,
            rows=rows,
            drafts=self.state.drafts,
            num_drafts=places.num_drafts,
            first_positions=places.positions[:, 0],
            first_places=places.starts,
        )
        coins = None if self.synthetic is None else Coins(seeds=self.sampling.seeds, bounds=self.synthetic.bounds)
        accept(verified, self.buffers.accepted(num_reqs, width), coins)

    def _extend(
        self,
        shape: StepShape,
        requests: RequestInputs,
        tokens: TokenInputs,
        hidden: torch.Tensor,
        contexts: Contexts,
    ) -> torch.Tensor:
        """Return the drafter's states after the step's tokens."""
        buffers = self.buffers
        return self.drafter.extend(
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

    def _propose(self, shape: StepShape, extended: torch.Tensor, contexts: Contexts) -> None:
        """Make the drafts and write the next inputs; ``extended`` [num_tokens, state_size] is what ``extend`` gave."""
        buffers, state, num_reqs = self.buffers, self.state, shape.num_reqs
        rows = buffers.rows.device[:num_reqs]
        drafting = shape.num_drafts > 0 or not self.extends
        begin = draft_inputs(
            buffers.judged(num_reqs, extended if drafting and self.extends else None),
            state.block_table,
            null_row=state.null_row,
            num_passes=shape.num_drafts if self.extends else 0,
            block_size=self._block_size,
            max_position=self._max_position,
        )
        drafts = None
        if drafting:
            drafts = self.drafter.propose(
                RoundRequests(
                    num_drafts=shape.num_drafts,
                    rows=rows,
                    sampled=buffers.sampled[:num_reqs],
                    num_sampled=buffers.num_sampled[:num_reqs],
                    next_tokens=begin.next_tokens,
                    next_positions=begin.next_positions,
                    state=begin.state,
                    token_pass=lambda index: TokenPass(
                        positions=begin.positions[index],
                        context=contexts(pass_metadata(begin, index, shape.key_ints)),
                    ),
                )
            )
        state.commit(rows, begin.next_positions, begin.next_tokens, drafts)


def _is_plain(shape: StepShape) -> bool:
    """Return whether a step is plain decoding, which a drafter has no part in."""
    return shape.query_len == 1 and not shape.num_drafts
