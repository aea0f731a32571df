"""Draft heads of a few thousand parameters for the targets of ``tiny_engine``, in the published layouts."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_engine import CONFIG

TARGET = {**CONFIG, "num_hidden_layers": 7}
"""Deep enough to have a low, a middle and a high layer."""
HIDDEN, INNER, VOCAB, DRAFT_VOCAB = 32, 48, 96, 40
Q_SIZE, KV_SIZE = 32, 16


def eagle3_config(**changes: object) -> dict[str, object]:
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": DRAFT_VOCAB}
    return {**CONFIG, **own, **changes}


def layer_tensors(prefix: str, inputs: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of what a Llama layer with inputs of width ``inputs`` has."""
    return {
        f"{prefix}self_attn.q_proj.weight": (Q_SIZE, inputs),
        f"{prefix}self_attn.k_proj.weight": (KV_SIZE, inputs),
        f"{prefix}self_attn.v_proj.weight": (KV_SIZE, inputs),
        f"{prefix}self_attn.o_proj.weight": (HIDDEN, Q_SIZE),
        f"{prefix}mlp.gate_proj.weight": (INNER, HIDDEN),
        f"{prefix}mlp.up_proj.weight": (INNER, HIDDEN),
        f"{prefix}mlp.down_proj.weight": (HIDDEN, INNER),
        f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
    }


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=random) * (0.3 if len(shape) > 1 else 0.1) + ("norm" in name)
        for name, shape in shapes.items()
    }


def eagle3_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Everything in a published EAGLE-3 checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "midlayer.hidden_norm.weight": (HIDDEN,),
        "midlayer.input_layernorm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
    }
    tensors = random_tensors({**shapes, **layer_tensors("midlayer.", 2 * HIDDEN)}, seed)
    target_ids = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed))[:DRAFT_VOCAB].sort().values
    tensors["d2t"] = target_ids - torch.arange(DRAFT_VOCAB)
    tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, target_ids, True)
    return tensors


def eagle_config(**changes: object) -> dict[str, object]:
    return {**CONFIG, "num_hidden_layers": 1, **changes}


def eagle_tensors(num_layers: int = 1, seed: int = 0) -> dict[str, torch.Tensor]:
    """Everything in a published checkpoint of the first generations."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (HIDDEN, 2 * HIDDEN)}
    for layer in range(num_layers):
        shapes |= layer_tensors(f"layers.{layer}.", HIDDEN)
        if layer > 0:
            shapes[f"layers.{layer}.input_layernorm.weight"] = (HIDDEN,)
    return random_tensors(shapes, seed)


def write_head(folder: Path, config: dict[str, object], tensors: dict[str, torch.Tensor]) -> Path:
    """Write config.json and the weights, in two shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: tensors[name].contiguous() for name in own}, folder / shard)
    index = {"weight_map": {name: shard for shard, own in shards.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
