"""What the device computes in a step, written once. Owns the three forms of it; capture and eager steps share them.

``whole``    inputs, forward, logits, sampling, next inputs: one full graph
``forward``  inputs and forward, hidden states left in a buffer: one piecewise graph, or eager
``head``     logits and sampling after ``forward``: always eager
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from legato.attention.planning import PlanningBackend
from legato.attention.protocol import AttentionBackend, AttentionContext
from legato.graphs.modes import SamplerVariant, Stage
from legato.graphs.segments import SegmentedCapture
from legato.kernels.token_mask import allowed_only
from legato.kvcache.storage import LayerCache
from legato.models.causal_lm import AuxiliaryStates
from legato.runner.attention_contexts import Contexts, attention_contexts
from legato.runner.buffers import StepBuffers
from legato.runner.device_state import DeviceState
from legato.runner.inputs import RequestInputs, last_tokens, request_inputs, token_inputs
from legato.runner.step_shape import StepShape
from legato.runner.step_sizes import StepSizes
from legato.sampling.sampler import sample
from legato.sampling.state import SamplingState


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMasks:
    """Which tokens the guided requests of a step may have."""

    requests: torch.Tensor  # [num_guided] int64, index in the batch
    bits: torch.Tensor  # [num_guided, ceil(vocab / 32)] int32, packed: set where allowed


class CausalModel(Protocol):
    """What the runner asks of a model."""

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
        auxiliary: AuxiliaryStates | None = None,
    ) -> torch.Tensor:
        """Return hidden states [num_tokens, hidden_size]; leave inner ones where ``auxiliary`` says."""
        ...

    def compute_logits(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits [num_rows, vocab_size] of hidden states [num_rows, hidden_size]."""
        ...


class StepProgram:
    """A model with its cache, its buffers and its rows."""

    def __init__(
        self,
        *,
        model: CausalModel,
        backend: AttentionBackend,
        caches: Mapping[int, LayerCache],
        buffers: StepBuffers,
        state: DeviceState,
        sampling: SamplingState,
        block_size: int,
        max_position: int,
    ) -> None:
        """``max_position``: the last that the model has."""
        self.model = model
        self.backend = backend
        self.planner = backend if isinstance(backend, PlanningBackend) else None
        """The backend, where it is to be told of batches before they run."""
        self.caches = caches
        self.buffers = buffers
        self.state = state
        self.sampling = sampling
        self.sizes = StepSizes()
        """Whose step attention outside of graphs works on, where that is padded."""
        self._block_size = block_size
        self._max_position = max_position

    def run(self, stage: Stage, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Run one of a step's stages eagerly, or capture it cut at each attention call where ``segments``."""
        assert stage is Stage.TARGET, "there is no drafter"
        self.forward(shape, segments)

    def whole(self, shape: StepShape, sampler: SamplerVariant | None) -> None:
        """Compute a step; with ``sampler`` None it ends at the logits."""
        requests = self._requests(shape)
        hidden = self._hidden(shape, requests, self._contexts(None))
        self._head(shape, requests, hidden, sampler)

    def forward(self, shape: StepShape, segments: SegmentedCapture | None = None) -> None:
        """Leave the hidden states of all tokens in their buffer, cut at each attention call where ``segments``."""
        hidden = self._hidden(shape, self._requests(shape), self._contexts(segments))
        self.buffers.hidden[: shape.num_tokens].copy_(hidden)

    def head(self, shape: StepShape, sampler: SamplerVariant | None, masks: TokenMasks | None = None) -> None:
        """Compute logits of each request's last token from the buffer of hidden states, and sample within ``masks``."""
        requests = self._requests(shape)
        self._head(shape, requests, self.buffers.hidden[: shape.num_tokens], sampler, masks)

    def sample(self, shape: StepShape, variant: SamplerVariant, masks: TokenMasks | None = None) -> None:
        """Sample from the logits in their buffer, within ``masks``, and write the next inputs."""
        self._sample(self._requests(shape), variant, masks)

    def _requests(self, shape: StepShape) -> RequestInputs:
        return request_inputs(
            shape, self.buffers, self.state, block_size=self._block_size, max_position=self._max_position
        )

    def _contexts(self, segments: SegmentedCapture | None) -> Contexts:
        return attention_contexts(self.backend, self.caches, segments, self.sizes)

    def _hidden(self, shape: StepShape, requests: RequestInputs, contexts: Contexts) -> torch.Tensor:
        tokens = token_inputs(shape, requests, self.buffers, self.state, block_size=self._block_size)
        return self.model(tokens.input_ids, tokens.positions, contexts(tokens.metadata))

    def _head(
        self,
        shape: StepShape,
        requests: RequestInputs,
        hidden: torch.Tensor,
        sampler: SamplerVariant | None,
        masks: TokenMasks | None = None,
    ) -> None:
        last = last_tokens(shape, requests)
        chosen = hidden if last is None else hidden.index_select(0, last)
        self.model.compute_logits(chosen, out=self.buffers.logits[: shape.num_reqs])
        if sampler is not None:
            self._sample(requests, sampler, masks)

    def _sample(self, requests: RequestInputs, variant: SamplerVariant, masks: TokenMasks | None) -> None:
        num_reqs = requests.rows.shape[0]
        logits = self.buffers.logits[:num_reqs]
        if masks is not None:  # in a copy: the buffer keeps the model's own, for log-probabilities
            logits = allowed_only(logits, masks.requests, masks.bits)
        out = self.buffers.sampled[:num_reqs]
        token_ids = sample(logits, requests.rows, requests.seq_lens, self.sampling, variant, out=out)
        self.state.commit(requests.rows, requests.seq_lens, token_ids)
