"""Multi-token prediction (DeepSeek-AI, arXiv 2412.19437, section 2.2): modules of a model that look further ahead.

Module ``m`` takes a state of depth ``m`` and the token that follows it to the state of depth ``m + 1``, from which
the model's own head reads the token after that; depth 0 is the model's final hidden state. A module is a decoder layer
of the model's family behind a projection of both, each normed. Modules carry the names of the published checkpoints,
where they are numbered as layers behind the model's own.
"""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.config.model import ModelConfig
from legato.layers.linear import Linear
from legato.layers.norm import RMSNorm
from legato.layers.rotary import RotaryEmbedding
from legato.models.causal_lm import Attention, DecoderLayer, number_layers


class SharedHead(nn.Module):
    """The norm before the model's head, which is shared."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)


class MtpModule(DecoderLayer):
    """One depth: a decoder layer, and the projection before it."""

    def __init__(
        self, attention: type[Attention], config: ModelConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(attention, config, config.num_layers - 1, dtype, device)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = RMSNorm(size, eps, dtype=dtype, device=device)
        self.hnorm = RMSNorm(size, eps, dtype=dtype, device=device)
        self.eh_proj = Linear(2 * size, size, bias=False, dtype=dtype, device=device)
        self.shared_head = SharedHead(config, dtype, device)

    def project(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Map tokens and states, [num_tokens, hidden_size] each, to the layer's input of that shape."""
        projected: torch.Tensor = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], dim=-1))
        return projected


class MtpModules(nn.Module):
    """All modules of a model. Embedding and head are the model's."""

    attention_layers: tuple[AttentionLayer, ...]

    def __init__(
        self, attention: type[Attention], config: ModelConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        """``attention``: the family's block, as in the model's last layer."""
        super().__init__()
        self.config = config
        self.rotary = RotaryEmbedding(config, dtype=dtype, device=device)
        modules = [MtpModule(attention, config, dtype, device) for _ in range(config.num_mtp_modules)]
        numbers = range(config.num_layers, config.num_layers + len(modules))
        self.layers = nn.ModuleDict({str(number): module for number, module in zip(numbers, modules, strict=True)})
        self.attention_layers = number_layers(modules, config.num_layers)
        self._modules_in_order = tuple(modules)

    def __len__(self) -> int:
        return len(self._modules_in_order)

    def forward(
        self,
        depth: int,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
    ) -> torch.Tensor:
        """Return states of ``depth + 1`` for states ``hidden`` of ``depth`` and what follows them.

        ``embedded`` and ``hidden`` are [num_tokens, hidden_size], ``positions`` [num_tokens] int64.
        """
        module = self._modules_in_order[depth]
        following: torch.Tensor = module(module.project(embedded, hidden), self.rotary(positions), context)
        return following

    def normed(self, depth: int, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the model's head reads of states that module ``depth`` gave."""
        result: torch.Tensor = self._modules_in_order[depth].shared_head.norm(hidden)
        return result
