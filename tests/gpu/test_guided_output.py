"""Guided output on the GPU: the kernel that forbids tokens, and an engine whose model runs while masks are filled."""

import json
import re

import pytest
import torch

from legato.device.protocol import Device
from legato.engine.llm import LLM
from legato.flow.guide import Guide
from legato.flow.sampling_params import SamplingParams
from legato.kernels.token_mask import allowed_only, forbid_reference
from legato.observability.reasons import Reason

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["kind", "age"],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [33, 4096, 128_256])
def test_the_kernel_forbids_what_torch_does(device: Device, vocab_size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, vocab_size, device=device.torch_device).to(dtype)
    bits = torch.randint(-(2**31), 2**31, (3, -(-vocab_size // 32)), device=device.torch_device).to(torch.int32)
    places = torch.tensor([8, 1, 2], device=device.torch_device)
    expected = logits.clone()
    forbid_reference(expected, places, bits)
    assert torch.equal(allowed_only(logits, places, bits), expected)


def test_mixed_batches_have_their_forms_on_full_graphs_under_overlap() -> None:
    pytest.importorskip("xgrammar")
    llm = LLM("smollm2", device="cuda", max_num_seqs=8, max_model_len=256, graph_sizes=(4, 8, 64))
    assert llm.config.overlap
    guides = [Guide.json_schema(SCHEMA, compact=True), Guide.regex("[0-9]{12}"), None, Guide.choice(["yes", "no"])]
    params = [SamplingParams(max_tokens=40, seed=index, guided=guide) for index, guide in enumerate(guides)]
    outputs = [output.outputs[0].text for output in llm.generate(["An animal:"] * 4, params)]
    value = json.loads(outputs[0])
    assert value["kind"] in ("cat", "dog")
    assert 0 <= value["age"] <= 99
    assert re.fullmatch("[0-9]{12}", outputs[1])
    assert outputs[3] in ("yes", "no")
    guided = [record for record in llm.step_records() if record.reason is Reason.GUIDED_OUTPUT]
    assert guided
    assert {record.mode for record in guided} == {"full"}
