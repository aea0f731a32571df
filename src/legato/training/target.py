"""The target as a teacher: token ids -> inner states and next-token distributions, by the engine's own forward.

Owns a KV cache for one batch, and its layout. Texts are padded to one length behind their end, where causal attention
lets nothing of the padding through.
"""

from dataclasses import dataclass, replace

import torch

from legato.attention.protocol import AttentionMetadata
from legato.engine.resolve import Resolved
from legato.kvcache.sizing import NUM_NULL_BLOCKS
from legato.kvcache.storage import allocate
from legato.models.causal_lm import AuxiliaryStates, CausalLM
from legato.runner.attention_contexts import InlineAttention

_LOGIT_ROWS = 4096
"""Rows whose logits over the whole vocabulary are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """What the target computes over a batch. Plain tensors: autograd may keep them."""

    auxiliary: torch.Tensor  # [num_texts, length, 3 * hidden_size]
    final: torch.Tensor  # [num_texts * length, hidden_size], behind the final norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the target says is next, at some positions."""

    probabilities: torch.Tensor  # [num_rows, draft_vocab_size], over the draft vocabulary alone
    greedy: torch.Tensor  # [num_rows] int64, of the whole vocabulary


class Target:
    """A loaded model with what its forward needs, for batches of whole texts."""

    def __init__(
        self,
        resolved: Resolved,
        model: CausalLM,
        auxiliary_layers: tuple[int, ...],
        *,
        num_blocks: int,
        max_num_texts: int,
    ) -> None:
        """``num_blocks``: of the cache, for the largest batch; without the null block."""
        self.model = model
        self.auxiliary_layers = auxiliary_layers
        self.device = resolved.device.torch_device
        self.dtype = resolved.dtype
        self._block_size = resolved.config.cache.block_size
        self._setup = replace(resolved.attention, max_num_seqs=max_num_texts)
        self._backend = resolved.backend.backend(self._setup)
        self._caches = allocate(
            resolved.layer_groups,
            num_blocks=num_blocks + NUM_NULL_BLOCKS,
            block_size=self._block_size,
            dtype=resolved.dtype,
            device=self.device,
        )

    @torch.no_grad()
    def states(self, token_ids: torch.Tensor) -> States:
        """Return inner and final states of ``token_ids`` [num_texts, length] int64."""
        num_texts, length = token_ids.shape
        width = len(self.auxiliary_layers) * self.model.config.hidden_size
        auxiliary = torch.empty(num_texts * length, width, dtype=self.dtype, device=self.device)
        last = self.model.config.max_position_embeddings - 1  # padding may lie behind it
        positions = torch.arange(length, device=self.device).clamp(max=last).repeat(num_texts)
        context = InlineAttention(self._backend, self._caches, self._metadata(num_texts, length))
        kept = AuxiliaryStates(layers=self.auxiliary_layers, out=auxiliary)
        final = self.model(token_ids.flatten(), positions, context, kept)
        return States(auxiliary=auxiliary.view(num_texts, length, width), final=final)

    @torch.no_grad()
    def lesson(self, final: torch.Tensor, draft_ids: torch.Tensor) -> Lesson:
        """Return what follows positions with states ``final`` [num_rows, hidden_size].

        ``draft_ids`` [draft_vocab_size] int64: the target id of each draft id.
        """
        probabilities = torch.empty(final.shape[0], draft_ids.shape[0], dtype=self.dtype, device=self.device)
        greedy = torch.empty(final.shape[0], dtype=torch.int64, device=self.device)
        for start in range(0, final.shape[0], _LOGIT_ROWS):
            rows = slice(start, start + _LOGIT_ROWS)
            logits = self.model.compute_logits(final[rows])
            torch.argmax(logits, dim=-1, out=greedy[rows])
            probabilities[rows] = logits.index_select(1, draft_ids).softmax(-1)  # which sums in float32
        return Lesson(probabilities=probabilities, greedy=greedy)

    @torch.no_grad()
    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the embedding of ``token_ids`` [num_texts, length] as [num_texts, length, hidden_size]."""
        embedded: torch.Tensor = self.model.model.embed_tokens(token_ids)
        return embedded

    def _metadata(self, num_texts: int, length: int) -> AttentionMetadata:
        """Return the layout of whole texts: each in blocks of its own, one behind another."""
        size, device = self._block_size, self.device
        blocks_each = -(-length // size)
        blocks = NUM_NULL_BLOCKS + torch.arange(num_texts * blocks_each, device=device).view(num_texts, blocks_each)
        offsets = torch.arange(length, device=device)
        return AttentionMetadata(
            query_start_loc=torch.arange(0, num_texts * length + 1, length, dtype=torch.int32, device=device),
            seq_lens=torch.full((num_texts,), length, dtype=torch.int32, device=device),
            block_table=blocks.to(torch.int32),
            slot_mapping=(blocks[:, :1] * size + offsets).flatten(),
            num_tokens=num_texts * length,
            num_reqs=num_texts,
            query_len=None,
            max_query_len=length,
            key_ints=dict(self._backend.key_ints(self._setup, num_reqs=num_texts, query_len=None, max_seq_len=length)),
        )
