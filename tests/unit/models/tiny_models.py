"""Random transformers models of a few thousand parameters, and the files that describe them."""

from pathlib import Path

import gguf
import torch
import transformers

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def tiny(family: str, **changes: object) -> transformers.PreTrainedModel:
    """A model of ``family`` whose every parameter, norms and biases included, is random."""
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **changes})
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    return model


def save(model: transformers.PreTrainedModel, folder: Path, *, shard: str = "1GB") -> Path:
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def write_gguf(model: transformers.PreTrainedModel, path: Path, kind: gguf.GGMLQuantizationType, name: str) -> Path:
    """Write ``model`` as llama.cpp's converter does: matrices as ``kind``, vectors as float32."""
    config = model.config
    writer = gguf.GGUFWriter(path, name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[name.upper()], config.num_hidden_layers)
    for hf_name, parameter in model.state_dict().items():
        if hf_name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = parameter.detach().float()
        if name == "llama" and ".q_proj." in hf_name:
            values = pairs_from_halves(values, config.num_attention_heads)
        if name == "llama" and ".k_proj." in hf_name:
            values = pairs_from_halves(values, config.num_key_value_heads)
        stored_as = kind if values.dim() == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(values.numpy(), stored_as)
        writer.add_tensor(names.get_name(hf_name, (".weight", ".bias")), data, raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pairs_from_halves(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """llama.cpp's row order for interleaved rotary embedding."""
    return rows.reshape(num_heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
