"""The training form of an EAGLE-3 head: the same parameters as the serving one, in float32, under autograd.

Training-time test (Li et al., arXiv 2503.01840, section 3.2): the head is unrolled over its own outputs as an engine
unrolls it. At step ``i`` a position attends to what the first step computed of all positions up to its own, and to what
the steps since then computed at its own. Knows no target: embeddings and inner states are given.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch.nn import functional

from legato.kernels.rotary import rotate
from legato.layers.mlp import ACTIVATIONS
from legato.layers.rotary import RotaryEmbedding
from legato.loading.draft_head_config import DraftHeadConfig
from legato.training.unrolled_attention import unrolled_attention

FC = "fc.weight"
NORM = "norm.weight"
LM_HEAD = "lm_head.weight"
_LAYER = "midlayer."


class TrainingHead:
    """Parameters by their published names, but for ``fc``, which is trained over inputs of about one size.

    Inner states of a target have channels that are hundreds of times larger than others. ``input_scale`` divides them,
    and is folded into ``fc`` where the head is published: the function is the same, and every weight learns.
    """

    def __init__(self, config: DraftHeadConfig, weights: Mapping[str, torch.Tensor], input_scale: torch.Tensor) -> None:
        """``weights``: as trained, on the device to train on; ``input_scale`` [3 * target_hidden_size] float32."""
        self.config = config
        self.input_scale = input_scale
        self.weights = {name: weight.detach().float().clone().requires_grad_() for name, weight in weights.items()}
        self.device = input_scale.device
        self._product_dtype = torch.float32 if self.device.type == "cpu" else torch.bfloat16
        self._rotary = RotaryEmbedding(config.model, dtype=torch.float32, device=self.device)

    def published(self) -> dict[str, torch.Tensor]:
        """Return copies of the parameters as checkpoints have them, float32."""
        weights = {name: weight.detach().clone() for name, weight in self.weights.items()}
        weights[FC] /= self.input_scale
        return weights

    def unroll(self, embedded: torch.Tensor, auxiliary: torch.Tensor, num_steps: int) -> list[torch.Tensor]:
        """Return the head's states after each step, [num_texts, length, hidden_size] float32.

        ``embedded`` [num_texts, length, hidden_size] of the texts' own tokens, ``auxiliary`` [num_texts, length,
        3 * target_hidden_size] of the target at them. The state of step ``i`` at position ``t`` has read tokens up to
        ``t + 1 + i``; where the text is over before that, it means nothing.
        """
        length = embedded.shape[1]
        following = functional.pad(embedded, (0, 0, 0, num_steps))
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        with self._autocast():
            states = [functional.linear(auxiliary / self.input_scale, self.weights[FC]).float()]
            for step in range(num_steps):
                tokens = following[:, step + 1 : step + 1 + length]
                states.append(self._layer(tokens, states[-1], step, keys, values))
        return states[1:]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map ``hidden`` [num_rows, hidden_size] to [num_rows, draft_vocab_size]."""
        with self._autocast():
            return functional.linear(self._normed(hidden, NORM), self.weights[LM_HEAD])

    def _autocast(self) -> AbstractContextManager[object]:
        """Return the context that weights are rounded for products in."""
        wide = self._product_dtype == torch.float32
        return torch.autocast(self.device.type, dtype=self._product_dtype, enabled=not wide)

    def _layer(
        self,
        embedded: torch.Tensor,
        residual: torch.Tensor,
        step: int,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Return the layer's states; its keys and values are put to those of the steps before."""
        inputs = torch.cat(
            [
                self._normed(embedded, f"{_LAYER}input_layernorm.weight"),
                self._normed(residual, f"{_LAYER}hidden_norm.weight"),
            ],
            dim=-1,
        )
        residual = residual + self._product(self._attention(inputs, step, keys, values), "self_attn.o_proj")
        inner = self._normed(residual, f"{_LAYER}post_attention_layernorm.weight")
        gate = ACTIVATIONS[self.config.model.hidden_act](self._product(inner, "mlp.gate_proj"))
        return residual + self._product(gate * self._product(inner, "mlp.up_proj"), "mlp.down_proj")

    def _attention(
        self, inputs: torch.Tensor, step: int, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> torch.Tensor:
        config = self.config.model
        query = self._turned(self._heads(inputs, "q_proj"), step)
        groups = config.num_heads // config.num_kv_heads
        keys.append(self._turned(self._heads(inputs, "k_proj"), step).repeat_interleave(groups, dim=2).transpose(1, 2))
        values.append(self._heads(inputs, "v_proj").repeat_interleave(groups, dim=2).transpose(1, 2))
        return unrolled_attention(query.transpose(1, 2), keys, values).transpose(1, 2).flatten(2)

    def _heads(self, inputs: torch.Tensor, part: str) -> torch.Tensor:
        """Return [num_texts, length, heads of ``part``, head_dim]."""
        flat = self._product(inputs, f"self_attn.{part}")
        return flat.view(*flat.shape[:2], -1, self.config.model.head_dim)

    def _turned(self, heads: torch.Tensor, step: int) -> torch.Tensor:
        positions = torch.arange(step, step + heads.shape[1], device=self.device)
        # Nothing is learned past the model's positions; padding may lie there.
        rotation = self._rotary(positions.clamp(max=self.config.model.max_position_embeddings - 1))
        return rotate(heads.float(), rotation.cos, rotation.sin).to(heads.dtype)

    def _product(self, inputs: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(inputs, self.weights[f"{_LAYER}{name}.weight"])

    def _normed(self, hidden: torch.Tensor, name: str) -> torch.Tensor:
        """Return ``hidden`` behind a norm, rounded once for all products that it goes into."""
        weight = self.weights[name]
        normed = functional.rms_norm(hidden.float(), weight.shape, weight, self.config.model.rms_norm_eps)
        return normed.to(self._product_dtype)
