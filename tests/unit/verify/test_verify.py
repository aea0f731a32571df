"""A healthy model is verified; each planted fault fails the verification with its key, layer and token."""

import json
from pathlib import Path

import pytest
import speculative_cases
from rich.console import Console
from tiny_engine import options, write_config

from legato.attention.registry import BACKENDS
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy
from legato.models.registry import MODELS
from legato.verify.report import Report
from legato.verify.session import VerifyRequest, verify

QUIET = Console(quiet=True)
SIZES = (2, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"), initializer_range=0.5)


def run(folder: Path, *policies: GraphPolicy, max_tokens: int = 6, prompts: Path | None = None, **changes) -> Report:
    engine = options(folder, **({"graph_sizes": SIZES} | changes))
    request = VerifyRequest(options=engine, policies=policies, prompts=prompts, max_tokens=max_tokens)
    return verify(request, QUIET)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FrozenHostValueBackend", "HostReadingBackend", "WrongBatchKernelBackend", "WrongDecodeKernelBackend"):
        module = __import__("planted_faults")
        monkeypatch.setitem(BACKENDS, getattr(module, name).name, f"planted_faults:{name}")


def test_a_healthy_model_is_verified_under_every_policy(folder: Path) -> None:
    report = run(folder, *GraphPolicy)
    assert report.passed
    assert report.findings == []
    policies = [str(policy) for policy in GraphPolicy]
    assert {engine.name for engine in report.engines} == {
        "reference",
        *policies,
        *(f"{policy}, overlap" for policy in policies),
    }
    assert {engine.name for engine in report.engines if engine.num_keys} == set(policies) - {"none"}
    for engine in report.engines:
        assert engine.num_reachable == engine.num_replayed == engine.num_keys
        assert engine.num_tokens == 6 * 6
        assert engine.max_logit_difference < 1e-4
        assert engine.seconds > 0
    by_name = {engine.name: engine for engine in report.engines}
    assert by_name["piecewise"].num_captured_twice == len(SIZES)
    assert by_name["full"].num_captured_twice == 2 * 4 * len(SIZES), "uniform and mixed, four samplers"
    assert by_name["full_and_piecewise"].num_captured_twice == 0, "each key was proven under an earlier policy"


def test_the_report_is_json(folder: Path) -> None:
    report = run(folder, GraphPolicy.FULL_DECODE_ONLY, max_tokens=2)
    value = json.loads(json.dumps(report.as_json()))
    assert value["passed"] is True
    assert value["first"] is None
    assert [engine["name"] for engine in value["engines"]] == [
        "none",
        "reference",
        "none, overlap",
        "full_decode_only",
        "full_decode_only, overlap",
    ]


@pytest.mark.usefixtures("faulty")
def test_a_host_value_frozen_at_capture_is_named_by_key_layer_and_token(folder: Path) -> None:
    report = run(folder, GraphPolicy.FULL_DECODE_ONLY, attention_backend="frozen_host_value")
    assert not report.passed
    first = next(finding for finding in report.findings if finding.engine == "full_decode_only")
    assert first.check == "canary"
    assert first.key == "target/full tokens=4 reqs=4 query_len=1 greedy"
    assert (first.layer, first.token) == ("layer 0", 0)


@pytest.mark.usefixtures("faulty")
def test_a_kernel_that_is_wrong_for_some_shapes_is_named_by_key_layer_and_token(folder: Path) -> None:
    report = run(folder, GraphPolicy.FULL_DECODE_ONLY, attention_backend="wrong_batch_kernel")
    assert not report.passed
    replays = [finding for finding in report.findings if finding.check == "replay"]
    assert {finding.key for finding in replays} == {
        f"target/full tokens=4 reqs=4 query_len=1{sampler}" for sampler in (" greedy", " temperature", " filtered", "")
    }
    assert (replays[0].layer, replays[0].token) == ("layer 1", 0)


@pytest.mark.usefixtures("faulty")
def test_a_kernel_that_is_wrong_with_and_without_graphs_is_named_by_the_reference(folder: Path) -> None:
    report = run(folder, GraphPolicy.FULL_DECODE_ONLY, attention_backend="wrong_decode_kernel")
    finding = report.findings[0]
    assert (finding.engine, finding.check) == ("reference", "prompts")
    assert (finding.key, finding.layer) == (None, "layer 1")
    assert finding.token == 1, "the first token comes from the prompt, the second is decoded"
    assert "log-probabilities" in finding.detail


@pytest.mark.usefixtures("faulty")
def test_a_graph_that_cannot_be_captured_fails_only_where_graphs_were_required(folder: Path) -> None:
    given = {"attention_backend": "host_reading"}
    lenient = run(folder, GraphPolicy.FULL_DECODE_ONLY, max_tokens=2, **given)
    assert lenient.passed
    assert max(engine.num_dropped for engine in lenient.engines) == 8
    strict = run(folder, GraphPolicy.FULL_DECODE_ONLY, max_tokens=2, graph_strict=True, **given)
    assert {finding.check for finding in strict.findings} == {"capture"}


def test_a_replay_that_is_within_the_tolerance_but_not_equal_to_its_own_shape_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from legato.runner.model_runner import ModelRunner

    replay = ModelRunner._run

    def drifting(self: ModelRunner, stage, max_query_len: int) -> None:
        replay(self, stage, max_query_len)
        if stage.key is not None:
            self.program.buffers.logits.mul_(1 + 1e-6)

    monkeypatch.setattr(ModelRunner, "_run", drifting)
    report = run(folder, GraphPolicy.FULL_DECODE_ONLY, max_tokens=2, graph_sizes=(4,))
    assert {finding.check for finding in report.findings} == {"replay"}
    assert len(report.findings) == 4, "one for each sampler"
    assert "logits of the replay" in report.findings[0].detail
    assert report.findings[0].token == 0


def test_a_buffer_that_moves_while_graphs_run_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from legato.verify.replay_check import ReplayCheck

    run_check = ReplayCheck.run

    def moving(self: ReplayCheck, **given):
        outcome = run_check(self, **given)
        state = self._core.runner.program.state
        state.block_table = state.block_table.clone()
        return outcome

    monkeypatch.setattr(ReplayCheck, "run", moving)
    report = run(folder, GraphPolicy.PIECEWISE, max_tokens=2, graph_sizes=(4,))
    assert [finding.check for finding in report.findings] == ["addresses"]
    assert "block_table" in report.findings[0].detail


def test_prompts_come_from_a_file_as_token_ids(folder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text("[1, 2, 3]\n\n[9]\n")
    report = run(folder, GraphPolicy.NONE, prompts=prompts, max_tokens=3)
    assert [engine.num_tokens for engine in report.engines] == [6, 6, 6]


def test_a_file_without_prompts_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="no prompt"):
        run(folder, GraphPolicy.NONE, prompts=tmp_path / "empty")


def test_every_registered_family_is_verified_layer_by_layer(folder: Path) -> None:
    """The probe reads modules that all families share."""
    import torch
    from dense_context import DenseContext

    from legato.loading.model_config import read_model_config
    from legato.loading.source import resolve_model
    from legato.models.registry import model_class
    from legato.verify.layer_probe import LayerProbe

    config, token_ids = read_model_config(resolve_model(str(folder), "dummy")), torch.tensor([5, 9])
    for name in MODELS:
        model = model_class(name)(config, torch.float32, torch.device("cpu"))
        for parameter in model.parameters():
            parameter.normal_()
        probe = LayerProbe(model, 3)
        with torch.inference_mode(), probe.installed():
            model(token_ids, torch.arange(2), DenseContext())
        seen = probe.outputs(2)
        assert list(seen) == ["embedding", "layer 0", "layer 1"]
        assert torch.equal(seen["embedding"], model.model.embed_tokens(token_ids))
        assert not torch.equal(seen["embedding"], seen["layer 0"])
        assert not torch.equal(seen["layer 0"], seen["layer 1"])


@pytest.mark.parametrize("method", ["ngram", "witness"])
def test_rounds_of_a_healthy_model_are_verified(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speculative_cases.script(monkeypatch, [])
    typed = f'{{"method": "{method}", "num_speculative_tokens": 3}}'
    policies = (GraphPolicy.PIECEWISE, GraphPolicy.FULL, GraphPolicy.FULL_AND_PIECEWISE)
    report = run(folder, *policies, graph_sizes=(4, 8), max_num_seqs=2, speculative_config=typed)
    assert report.findings == []
    by_name = {engine.name: engine for engine in report.engines}
    assert all(engine.num_reachable == engine.num_replayed == engine.num_keys for engine in report.engines)
    stages = {step.split()[0] for engine in report.engines for step in engine.steps}
    assert stages == {"target", "draft"} | ({"extend"} if method == "witness" else set())
    assert by_name["full"].num_keys > by_name["piecewise"].num_keys >= 2 * len(SIZES)
    if method == "ngram":
        assert {engine.accepted for engine in report.engines} == {by_name["none"].accepted}
        assert sum(by_name["none"].accepted) > 0


def test_drafts_that_stand_whatever_the_model_says_are_held_to_eager_rounds_alone(folder: Path) -> None:
    typed = (
        '{"method": "ngram", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic",'
        ' "synthetic_acceptance_length": 2.5}'
    )
    report = run(folder, GraphPolicy.FULL_AND_PIECEWISE, graph_sizes=(4, 8), max_num_seqs=2, speculative_config=typed)
    assert report.passed
    assert "reference" not in {engine.name for engine in report.engines}
    assert any("whatever the model says" in note for note in report.notes)
    assert sum(report.engines[0].accepted) > 0
