"""Every registered drafter beside a tiny target, and its drafts computed from scratch, without a cache."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from dense_context import DenseContext
from tiny_engine import write_config
from tiny_heads import eagle3_config, eagle3_tensors, eagle_config, eagle_tensors, write_head

from legato.attention.backends.torch_sdpa import TorchSdpaBackend
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.kvcache.storage import LayerCache
from legato.models.causal_lm import AuxiliaryStates, CausalLM
from legato.models.eagle3 import Eagle3Head
from legato.runner.drafter import Drafter, RoundRequests, RoundTokens
from legato.speculative.draft_model import DraftModelDrafter
from legato.speculative.eagle import EagleDrafter
from legato.speculative.eagle3 import Eagle3Drafter
from legato.speculative.mtp import MtpDrafter

DEEP = {"num_hidden_layers": 7}
"""Enough to have a low, a middle and a high layer."""


DraftsFromScratch = Callable[[Drafter, CausalLM, Sequence[int]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterCase:
    """What is typed to have it, over a target that is written with it."""

    method: str
    target: Mapping[str, object] = field(default_factory=dict)
    """Changes to the target's config.json."""
    write: Callable[[Path], Path | None] = lambda folder: None
    """Writes the drafter's folder at the place given, where it has one."""
    num_layers: int = 0
    """Attention layers of its own, which are stored beside the target's."""
    from_scratch: DraftsFromScratch | None = None
    """The drafts after tokens of which the target has computed all but the last; None: it has no layers."""

    def write_target(self, folder: Path) -> Path:
        """Write the target, which exists as a configuration alone."""
        return write_config(folder / "target", **self.target)

    def typed(self, folder: Path, num_drafts: int, **settings: object) -> str:
        """Write the drafter and return the text of --speculative-config."""
        written = self.write(folder / "drafter")
        named: dict[str, object] = {}
        if written is not None:
            has_weights = any(written.glob("*.safetensors"))
            named = {"model": str(written), "load_format": "safetensors" if has_weights else "dummy"}
        return json.dumps({"method": self.method, "num_speculative_tokens": num_drafts, **named, **settings})


class CarelessPadding(TorchSdpaBackend):
    """Leaves what is not a number for padded tokens, as memory that was never written may."""

    name: ClassVar[str] = "careless"

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        super().forward(layer, query, cache, metadata, out)
        whole = out.new_empty(0).set_(out.untyped_storage())  # rows behind the step's own tokens, too
        whole[out[: int(metadata.query_start_loc[-1])].numel() :] = float("nan")


class Watched:
    """A drafter, with a record of what it proposed for which tokens."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.num_drafts = drafter.num_drafts
        self.state_size = drafter.state_size
        self.auxiliary_layers = drafter.auxiliary_layers
        self.prompts: dict[int, tuple[int, ...]] = {}
        self.proposed: list[tuple[tuple[int, ...], int, int, list[int]]] = []
        """(tokens that the row began with, position of the next token, that token, drafts)"""

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        self.prompts[row] = tuple(token_ids)
        self.drafter.admit(row, token_ids)

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        return self.drafter.extend(tokens)

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        drafts = self.drafter.propose(requests)
        told = (requests.rows, requests.next_positions, requests.next_tokens, drafts)
        for row, position, token, own in zip(*(tensor.tolist() for tensor in told), strict=True):
            if row in self.prompts:
                self.proposed.append((self.prompts[row], position, token, own))
        return drafts

    def tensors(self) -> Mapping[str, torch.Tensor]:
        return self.drafter.tensors()


@torch.inference_mode()
def of_head(drafter: Drafter, target: CausalLM, token_ids: Sequence[int]) -> list[int]:
    """What a head drafts over the target's states, with itself for context."""
    assert isinstance(drafter, Eagle3Drafter | EagleDrafter)
    ids, hidden, auxiliary = _of_target(drafter, target, token_ids)
    head, context, drafts = drafter._head, DenseContext(), []

    def advance(token_ids: torch.Tensor, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        if isinstance(head, Eagle3Head):
            return head(target.model.embed_tokens, token_ids, states, places, context)
        return head(target.model.embed_tokens(token_ids), states, places, context)

    states = head.combine(auxiliary) if isinstance(head, Eagle3Head) else hidden
    state = advance(ids[1:], states, torch.arange(len(states)))[-1:]
    for index in range(drafter.num_drafts):
        if isinstance(head, Eagle3Head):
            draft_id = head.compute_logits(state).argmax(-1)
            drafts.append(int(draft_id + head.d2t[draft_id]))
        else:
            drafts.append(int(target.compute_logits(state).argmax(-1)))
        position = torch.tensor([len(states) + index])
        state = advance(torch.tensor(drafts[-1:]), state.clone(), position)
    return drafts


@torch.inference_mode()
def of_model(drafter: Drafter, target: CausalLM, token_ids: Sequence[int]) -> list[int]:
    """What another model says, which is asked for every token again."""
    assert isinstance(drafter, DraftModelDrafter)
    known, model = list(token_ids), drafter._model
    for _ in range(drafter.num_drafts):
        hidden = model(torch.tensor(known), torch.arange(len(known)), DenseContext())
        known.append(int(model.compute_logits(hidden[-1:]).argmax(-1)))
    return known[-drafter.num_drafts :]


@torch.inference_mode()
def of_modules(drafter: Drafter, target: CausalLM, token_ids: Sequence[int]) -> list[int]:
    """Every module over the whole sequence, drafts included, again for each draft.

    Behind the target's states there are none: the first module cannot go on, and each other one ends a place later than
    the one before it; behind its end, the last one goes on from its own states.
    """
    assert isinstance(drafter, MtpDrafter)
    ids, hidden, _ = _of_target(drafter, target, token_ids)
    modules, drafts = drafter._modules, []
    for count in range(drafter.num_drafts):
        tokens = torch.cat([ids, torch.tensor(drafts, dtype=torch.int64)])
        embedded = target.model.embed_tokens(tokens[1:])
        depth = min(count, len(modules) - 1)
        states = hidden
        for module in range(depth + 1):
            if module > 0:  # what is a place further has the state of the place before
                states = torch.cat([torch.zeros_like(states[:1]), states])
            context, num_known = DenseContext(), len(states)
            states = modules(module, embedded[:num_known], states, torch.arange(num_known), context)
        while len(states) < len(tokens) - 1:  # the last module, on its own states
            place = len(states)
            further = modules(depth, embedded[place : place + 1], states[-1:], torch.tensor([place]), context)
            states = torch.cat([states, further])
        drafts.append(int(target.compute_logits(modules.normed(depth, states[-1:])).argmax(-1)))
    return drafts


def _of_target(
    drafter: Drafter, target: CausalLM, token_ids: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tokens, and the target's final and inner states of all of them but the last."""
    ids, layers = torch.tensor(token_ids), drafter.auxiliary_layers
    auxiliary = torch.empty(len(ids) - 1, len(layers) * target.config.hidden_size)
    states = AuxiliaryStates(layers=layers, out=auxiliary)
    return ids, target(ids[:-1], torch.arange(len(ids) - 1), DenseContext(), states), auxiliary


CASES = {
    "ngram": DrafterCase(method="ngram"),
    "eagle3": DrafterCase(
        method="eagle3",
        target=DEEP,
        write=lambda folder: write_head(folder, eagle3_config(), eagle3_tensors()),
        num_layers=1,
        from_scratch=of_head,
    ),
    "eagle, two layers": DrafterCase(
        method="eagle",
        write=lambda folder: write_head(folder, eagle_config(num_hidden_layers=2), eagle_tensors(2)),
        num_layers=2,
        from_scratch=of_head,
    ),
    "mtp, one module": DrafterCase(
        method="mtp", target={"num_nextn_predict_layers": 1}, num_layers=1, from_scratch=of_modules
    ),
    "mtp, three modules of qwen3": DrafterCase(
        method="mtp",
        target={"num_nextn_predict_layers": 3, "architectures": ["Qwen3ForCausalLM"]},
        num_layers=3,
        from_scratch=of_modules,
    ),
    "draft_model of another form": DrafterCase(
        method="draft_model",
        write=lambda folder: write_config(folder, num_attention_heads=2, num_key_value_heads=1, head_dim=16),
        num_layers=2,
        from_scratch=of_model,
    ),
}
