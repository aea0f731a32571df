"""What the frontends' tests share: a tokenizer of bytes with two special tokens, a configuration, and requests."""

from typing import Any

import tokenizers

from legato.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from legato.config.model import ModelConfig, RopeConfig
from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams
from legato.loading.chat_template import ChatTemplate
from legato.loading.tokenizer import Tokenizer

END, START = 256, 257
VOCAB_SIZE = 300
MAX_MODEL_LEN = 40
TEMPLATE = "{% for m in messages %}<start>{{ m.role }}: {{ m.content }}\n{% endfor %}"


def byte_tokenizer() -> Tokenizer:
    """Return a tokenizer whose token ids 0 to 255 are bytes; 256 is ``<end>``, 257 ``<start>``."""
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in alphabet]
    spelling = {byte: chr(byte) for byte in alphabet} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={piece: byte for byte, piece in spelling.items()}, merges=[])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<end>", "<start>"])
    return Tokenizer(backend, bos_token_id=START, eos_token_ids=(END,), chat_template=ChatTemplate(TEMPLATE, {}))


def engine_config(*, seed: int = 0) -> EngineConfig:
    """Return the configuration of a small model."""
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        max_position_embeddings=MAX_MODEL_LEN,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        eos_token_ids=(299,),
    )
    return EngineConfig(
        model_name="tiny",
        served_model_name="tiny",
        model=model,
        dtype="float32",
        device="cpu",
        cache=CacheConfig(block_size=16, num_blocks=32, prefix_caching=True),
        scheduler=SchedulerConfig(
            max_model_len=MAX_MODEL_LEN, max_num_seqs=4, max_num_batched_tokens=64, policy="fcfs", max_queue=8
        ),
        overlap=False,
        attention_backend="torch_sdpa",
        graph_policy="none",
        graph_sizes=None,
        graph_strict=False,
        compile="none",
        max_logprobs=5,
        seed=seed,
        decisions=(),
    )


def engine_request(request_id: str = "r", *, prompt: str = "Hi", arrival: float = 0.0, **params: Any) -> Request:
    """Return an engine request with these sampling parameters."""
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt.encode()),
        params=SamplingParams(**({"max_tokens": 100} | params)),
        seed=0,
        stop_token_ids=frozenset({END}),
        max_tokens=100,
        arrival=arrival,
    )
