"""A tiny random Llama with a byte-level tokenizer and a chat template, as a folder in Hugging Face layout."""

import json
from pathlib import Path

import numpy
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def write_tiny_model(folder: Path, num_layers: int = 2) -> Path:
    """Write the model into ``folder`` and return it."""
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": num_layers}))
    random = numpy.random.default_rng(0)
    tensors = {name: random.normal(0, 0.3, shape).astype(numpy.float32) for name, shape in shapes(num_layers).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    return folder


def shapes(num_layers: int = 2) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor."""
    vocab, hidden, inner, kv = 300, 32, 64, 16
    named: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    for layer in range(num_layers):
        prefix = f"model.layers.{layer}."
        named |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (hidden, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, hidden),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
    return named


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer with one token per byte, after <|end|> and <|start|>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": 0, "<|start|>": 1} | {letter: number for number, letter in enumerate(alphabet, 2)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True), AddedToken("<|start|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|start|>", "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
