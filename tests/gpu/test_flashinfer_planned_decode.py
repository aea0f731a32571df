"""FlashInfer's planned decode on the GPU, wherever XQA would serve: blocks of 8 tokens are none of XQA's sizes."""

from pathlib import Path

import pytest
from rich.console import Console
from test_backends_end_to_end import ENGINE, REQUESTS, check_alike, engine, folder
from tiny_engine import options, run, write_config

from legato.device.protocol import Device
from legato.errors import BackendError
from legato.graphs.modes import GraphPolicy
from legato.runner.model_runner import BegunStep, ModelRunner
from legato.verify.session import VerifyRequest, verify

__all__ = ["folder"]
PLANNED: dict[str, object] = {"attention_backend": "flashinfer", "block_size": 8}


def test_graphs_whose_plans_are_renewed_give_the_tokens_of_eager_steps_and_no_launch_waits(
    folder: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = run(engine(folder, "flashinfer", graph_policy="none", overlap=False, block_size=8), REQUESTS)
    core = engine(folder, "flashinfer", graph_policy="full_and_piecewise", overlap=True, block_size=8)
    report = core.graph_report()
    assert (report["dropped"], report["uniform"]["1"]) == ([], "full")
    check_alike(eager, run(core, REQUESTS))
    begin = ModelRunner.begin

    def watched_begin(self: ModelRunner, *arguments: object) -> BegunStep:
        with device.forbid_waiting():
            return begin(self, *arguments)

    monkeypatch.setattr(ModelRunner, "begin", watched_begin)
    check_alike(eager, run(core, REQUESTS))


def test_a_window_is_kept_to_by_plans_too(folder: Path, tmp_path: Path) -> None:
    shape = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 64, "vocab_size": 512}
    kind = {"architectures": ["MistralForCausalLM"], "sliding_window": 20, "torch_dtype": "bfloat16"}
    write_config(tmp_path, **shape, **kind, max_position_embeddings=512, initializer_range=0.2)
    eager = run(engine(tmp_path, "triton", graph_policy="none", overlap=False, block_size=8), REQUESTS)
    core = engine(tmp_path, "flashinfer", graph_policy="full_and_piecewise", overlap=True, block_size=8)
    assert core.graph_report()["dropped"] == []
    check_alike(eager, run(core, REQUESTS))


def test_verify_finds_nothing_in_planned_graphs(folder: Path) -> None:
    given = options(folder, **ENGINE | PLANNED)
    try:
        report = verify(VerifyRequest(options=given, policies=(GraphPolicy.FULL_AND_PIECEWISE,)), Console(quiet=True))
    except BackendError as error:
        pytest.skip(f"flashinfer: {error}")
    assert report.findings == []
    assert report.passed
