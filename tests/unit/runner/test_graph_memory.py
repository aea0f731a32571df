"""Whole engines on a device that writes over released memory, and on one that runs out of it."""

import gc
from pathlib import Path

import pytest
import torch
from tiny_engine import build, request, tokens, write_config

from legato.attention.protocol import AttentionContext
from legato.device.recording import RecordingDevice
from legato.models.llama import LlamaForCausalLM
from legato.models.registry import MODELS
from legato.observability.reasons import Reason
from legato.runner.attention_contexts import BreakingAttention

PROMPTS = {"a": (5, 6, 7), "b": (50, 40, 30, 20, 10, 0), "c": (9,)}
SIZES = {"graph_sizes": (1, 2, 4, 16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def serve(core) -> dict[str, list[int]]:
    return tokens(core, [request(name, prompt, max_tokens=6) for name, prompt in PROMPTS.items()])


@pytest.mark.parametrize("policy", ["piecewise", "full_and_piecewise"])
def test_graphs_hold_where_released_memory_is_written_over(
    folder: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = serve(build(folder, graph_policy="none"))
    monkeypatch.setattr(RecordingDevice, "writes_over_released", True)
    core = build(folder, graph_policy=policy, graph_strict=True, **SIZES)
    assert serve(core) == expected


def test_metadata_that_nobody_owns_is_nonsense_in_a_later_segment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_the_owned(self: BreakingAttention, *arguments: object) -> None:
        original(self, *arguments)
        self._metadata = self._own.padded

    original = BreakingAttention.__init__
    monkeypatch.setattr(BreakingAttention, "__init__", forget_the_owned)
    monkeypatch.setattr("legato.runner.step_program.StepProgram._hidden", hidden_without_a_frame_that_owns)
    monkeypatch.setattr(RecordingDevice, "writes_over_released", True)
    with pytest.raises(IndexError):  # the second layer looks for block -1
        build(folder, graph_policy="piecewise", **SIZES)


def hidden_without_a_frame_that_owns(self, shape, requests, context):
    """Do what the step does, but keep nothing of the metadata in the frame that calls the model."""
    from legato.runner.inputs import token_inputs

    def split() -> tuple[torch.Tensor, torch.Tensor, AttentionContext]:
        made = token_inputs(shape, requests, self.buffers, self.state, block_size=self._block_size)
        return made.input_ids, made.positions, context(made.metadata)

    return self.model(*split())


class LargeStepsDoNotFit(LlamaForCausalLM):
    """Runs out of memory at more than two tokens."""

    while_capturing = False

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        capturing = torch.overrides._len_torch_function_stack() > 0
        if len(input_ids) > 2 and capturing >= self.while_capturing:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
        return super().forward(input_ids, positions, context)


class LargeCapturesDoNotFit(LargeStepsDoNotFit):
    """Runs out of memory only in captures."""

    while_capturing = True


@pytest.mark.parametrize("model", [LargeStepsDoNotFit, LargeCapturesDoNotFit])
@pytest.mark.parametrize("policy", ["piecewise", "full_decode_only"])
def test_keys_that_do_not_fit_in_memory_are_dropped_and_the_others_serve(
    folder: Path, policy: str, model: type[LargeStepsDoNotFit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "LlamaForCausalLM", f"{__name__}:{model.__name__}")
    report = build(folder, graph_policy=policy, **SIZES).graph_report()
    assert {entry["num_tokens"] for entry in report["catalog"]} == {1, 2}
    assert {entry["reason"] for entry in report["dropped"]} == {str(Reason.CAPTURE_FAILED)}
    details = {entry["detail"] for entry in report["dropped"]}
    assert details == {"out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."}


def test_what_a_host_has_frozen_stays_so_while_graphs_are_captured(folder: Path) -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    build(folder, **SIZES)
    assert gc.isenabled()
    assert gc.get_freeze_count() > before / 2, "a few may have been freed"
