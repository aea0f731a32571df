"""The default model, dequantised to float32, continues as transformers continues it."""

import json
from pathlib import Path

import pytest
import torch
from dense_context import DenseContext

from legato.errors import ModelNotFoundError
from legato.loading.model_config import read_model_config
from legato.loading.source import resolve_model
from legato.models.build import build_model
from legato.models.causal_lm import CausalLM

GOLDEN = Path(__file__).parents[3].parent / "shared" / "golden" / "golden_smollm2-135m-instruct.json"
PROMPTS = ("raw_capital", "raw_unicode", "chat_italy")
NUM_TOKENS = 8


@pytest.fixture(scope="module")
def smollm2() -> CausalLM:
    try:
        source = resolve_model("smollm2")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    return build_model(source, read_model_config(source), torch.float32, "cpu")[0]


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN.exists(), reason=f"no golden tokens at {GOLDEN}")
@pytest.mark.parametrize("prompt_id", PROMPTS)
def test_greedy_tokens_are_the_golden_ones(smollm2: CausalLM, prompt_id: str) -> None:
    golden = {prompt["id"]: prompt for prompt in json.loads(GOLDEN.read_text())["prompts"]}[prompt_id]
    context, position, generated = DenseContext(), 0, []
    feed = golden["prompt_ids"]
    with torch.inference_mode():
        while len(generated) < NUM_TOKENS:
            hidden = smollm2(torch.tensor(feed), torch.arange(position, position + len(feed)), context)
            position += len(feed)
            feed = [int(smollm2.compute_logits(hidden[-1:]).argmax())]
            generated += feed
    assert generated == golden["generated_ids"][:NUM_TOKENS]
