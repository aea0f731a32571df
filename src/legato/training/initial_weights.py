"""The weights that training begins with. Owns what of them is the target's, and what is drawn."""

import torch

from legato.loading.draft_head_config import DraftHeadConfig
from legato.models.build import checkpoint_parameters
from legato.models.causal_lm import CausalLM
from legato.models.eagle3 import Eagle3Head
from legato.training.head import LM_HEAD, NORM

_RESIDUAL = ("o_proj.weight", "down_proj.weight")
_RESIDUAL_SCALE = 0.1
"""What is added to a hidden state begins small, so that the first steps learn to read it."""


def initial_weights(
    config: DraftHeadConfig, target: CausalLM, draft_ids: torch.Tensor, *, seed: int
) -> dict[str, torch.Tensor]:
    """Return the parameters of a head by their published names, float32, on the device of ``draft_ids``.

    Output rows are the target's, and the final norm is too but for its size: logits begin with a standard deviation of
    about 1, where the target's own size would make the first drafts certain and wrong. Other matrices are drawn with a
    standard deviation of one over the root of their input width, other norms are 1.
    """
    meta = torch.device("meta")
    shapes = dict(checkpoint_parameters(Eagle3Head(config, 0, torch.float32, meta)))
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in shapes.items():
        if parameter.dim() == 1:
            drawn = torch.ones(parameter.shape)
        else:
            scale = parameter.shape[1] ** -0.5 * (_RESIDUAL_SCALE if name.endswith(_RESIDUAL) else 1.0)
            drawn = torch.randn(parameter.shape, generator=random) * scale
        weights[name] = drawn.to(draft_ids.device)
    norm = target.model.norm.weight.detach().float()
    rows = target.lm_head.weight.detach().index_select(0, draft_ids).float()
    weights[NORM] = norm / (rows * norm).square().sum(-1).mean().sqrt()
    weights[LM_HEAD] = rows
    return weights


def input_scale(auxiliary: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each channel of ``auxiliary`` [num_rows, width], float32; none is 0."""
    return auxiliary.float().square().mean(0).sqrt().clamp(min=1e-6)
