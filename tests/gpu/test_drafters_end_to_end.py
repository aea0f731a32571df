"""Drafters with layers of their own on the GPU, over each attention backend: rounds in graphs say what plain steps do.

Run by hand: ``pytest tests/gpu/test_drafters_end_to_end.py``.
"""

import json
from pathlib import Path

import pytest
from test_backends_end_to_end import REQUESTS, VOCAB_SIZE, check_alike, engine
from tiny_engine import run, write_config

SHAPE: dict[str, object] = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "head_dim": 64,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
HEADS: dict[str, dict[str, object] | None] = {
    "eagle3": {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 200},
    "eagle": {"num_hidden_layers": 1},
    "mtp": None,
    "draft_model": {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4},
}
"""What each drafter's config.json says beside the shape; None: its weights are the target's."""
POLICIES = ("none", "piecewise", "full_and_piecewise")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a low, a middle and a high layer, and two modules that look ahead."""
    return write_config(tmp_path_factory.mktemp("target"), **SHAPE, num_hidden_layers=7, num_nextn_predict_layers=2)


@pytest.mark.parametrize("method", HEADS)
def test_rounds_say_what_plain_steps_say(backend: str, method: str, target: Path, tmp_path: Path) -> None:
    expected = run(engine(target, backend, graph_policy="none"), REQUESTS)
    own = HEADS[method]
    model = {} if own is None else {"model": str(write_config(tmp_path, **{**SHAPE, **own}))}
    typed = json.dumps({"method": method, "num_speculative_tokens": 3, **model})
    for policy in POLICIES:
        core = engine(target, backend, graph_policy=policy, speculative_config=typed)
        assert core.graph_report()["dropped"] == []
        check_alike(expected, run(core, REQUESTS))
        assert core.stats().spec_decode_draft_tokens > 0
