"""A GGUF file that was unpacked for other engines is the model that it was made from."""

from pathlib import Path

import gguf
import pytest
import torch
import transformers
from tiny_models import tiny, write_gguf

from legato.bench.unpacked_model import unpack
from legato.loading.source import resolve_model


@pytest.mark.parametrize("architecture", ["Llama", "Qwen2"])
def test_a_folder_unpacked_from_a_gguf_has_the_logits_of_the_model_in_it(architecture: str, tmp_path: Path) -> None:
    model = tiny(architecture)
    name = architecture.lower()
    path = write_gguf(model, tmp_path / "model.gguf", gguf.GGMLQuantizationType.F32, name)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    unpack(resolve_model(str(path)), "auto", folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    token_ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(token_ids).logits, model(token_ids).logits)
