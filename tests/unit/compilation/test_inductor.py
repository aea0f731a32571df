"""Code that TorchInductor generates serves an engine on the CPU: the same words, verified, and shown at start."""

import io
import shutil
from pathlib import Path

import pytest
import torch
from compiled_models import CPU, MAX_TOKENS, tiny
from dense_oracle import DenseContext
from rich.console import Console
from tiny_engine import options, request, run, write_config

from legato.compilation.compiled_model import compile_model
from legato.compilation.inductor import inductor
from legato.engine.bootstrap import build_engine
from legato.graphs.modes import GraphPolicy
from legato.verify.session import VerifyRequest, verify

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="generated code for the CPU needs g++")


def test_generated_code_serves_every_number_of_tokens(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    generated = compile_model(model, CPU, inductor, max_num_tokens=MAX_TOKENS)
    with torch.inference_mode():
        for num_tokens in (1, 2, 7, 16, 100):
            ids, positions = torch.arange(num_tokens) % 96, torch.arange(num_tokens)
            expected = model(ids, positions, DenseContext())
            torch.testing.assert_close(generated(ids, positions, DenseContext()), expected, atol=1e-4, rtol=1e-4)


def test_an_engine_with_generated_code_says_the_same_and_says_what_was_compiled(tmp_path: Path) -> None:
    write_config(tmp_path, initializer_range=0.3)
    results, reports, shown = [], [], io.StringIO()
    for compiler in ("none", "inductor"):
        changes = {"graph_policy": "full_and_piecewise", "graph_sizes": (2, 8), "compile": compiler}
        core = build_engine(options(tmp_path, **changes), Console(file=shown, width=200))
        results.append(run(core, [request("one", (5, 9, 2, 7), logprobs=1, max_tokens=8)])["one"])
        reports.append(core.graph_report())
    written, generated = results
    assert generated.token_ids == written.token_ids
    assert [entry.logprob for entry in generated.logprobs] == pytest.approx(
        [entry.logprob for entry in written.logprobs], abs=1e-4
    )
    assert [report["compile"] for report in reports] == ["none", "inductor"]
    assert reports[1]["dropped"] == []
    assert shown.getvalue().count("compiled 3 different pieces of 3 in") == 1


def test_generated_code_is_verified_against_the_kernels_as_written(tmp_path: Path) -> None:
    write_config(tmp_path, initializer_range=0.5)
    engine = options(tmp_path, compile="inductor", graph_sizes=(2,))
    report = verify(
        VerifyRequest(options=engine, policies=(GraphPolicy.FULL_AND_PIECEWISE,), max_tokens=4), Console(quiet=True)
    )
    assert report.findings == []
    names = [engine.name for engine in report.engines]
    assert "none, inductor" in names
    assert any("as written" in note for note in report.notes)
