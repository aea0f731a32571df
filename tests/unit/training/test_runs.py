"""A run from prompts to a head: what it learns, what it leaves, and how it goes on."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_listener import Listener

from legato.config.options import EngineOptions
from legato.engine.llm import LLM
from legato.errors import ConfigError
from legato.flow.sampling_params import SamplingParams
from legato.loading.draft_head_config import read_draft_head_config
from legato.loading.source import resolve_model
from legato.models.build_head import build_eagle3_head
from legato.speculative.eagle3 import ARCHITECTURES
from legato.training.questions import split_prompts
from legato.training.run import train_drafter
from legato.training.settings import TrainingOptions

OPTIONS = TrainingOptions(
    max_length=96,
    max_answer_tokens=32,
    num_held_out=4,
    batch_tokens=256,
    epochs=10,
    draft_vocab_size=200,
    intermediate_size=80,
    unroll=3,
    warmup_steps=4,
    learning_rate=3e-3,
    evaluate_every=20,
    checkpoint_every=10,
)


@pytest.fixture(scope="module")
def options(held_out: Path) -> TrainingOptions:
    return replace(OPTIONS, held_out=(str(held_out),))


@pytest.fixture(scope="module")
def finished(prompts, options, engine, tmp_path_factory) -> tuple[Path, Listener]:
    out, listener = tmp_path_factory.mktemp("head"), Listener()
    train_drafter([prompts], out, options, engine, listener)
    return out, listener


def test_the_loss_falls_and_drafts_are_right_far_above_chance(finished):
    _, listener = finished
    assert listener.losses[-1] < listener.losses[0] - 0.1
    last = listener.evaluations[-1]
    assert all(rate > 20 / OPTIONS.draft_vocab_size for rate in last.acceptance_rates)
    assert last.acceptance_lengths[2] > 1.4


def test_the_log_has_every_evaluation(finished):
    out, listener = finished
    lines = [json.loads(line) for line in (out / "training" / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [evaluation.loss for evaluation in listener.evaluations]
    assert len(lines) >= 2


def test_the_checkpoint_is_one_of_the_published_layout(finished, target):
    out, _ = finished
    config = read_draft_head_config(out, ARCHITECTURES)
    assert (config.model.vocab_size, config.draft_vocab_size, config.auxiliary_layers) == (300, 200, (2, 3, 4))
    assert (config.model.hidden_size, config.model.intermediate_size) == (32, 80)
    source = resolve_model(str(out), "auto")
    head, report = build_eagle3_head(source, config, 7, torch.float32, torch.device("cpu"))
    assert report.unexpected == ()
    stored = load_file(out / "model.safetensors")
    assert stored["t2d"].nonzero().flatten().tolist() == head.target_ids.tolist()


def test_an_engine_accepts_as_many_drafts_as_the_evaluation_says(finished, held_out, engine):
    """And says what it says without them."""
    out, listener = finished
    config = {"method": "eagle3", "model": str(out), "num_speculative_tokens": 3}
    params = SamplingParams(temperature=0.0, max_tokens=OPTIONS.max_answer_tokens)
    texts = [json.loads(line)["prompt"] for line in held_out.read_text().splitlines()]
    chats = [[{"role": "user", "content": text}] for text in texts]
    plain = LLM(engine).chat(chats, params, use_progress=False)
    llm = LLM(replace(engine, speculative_config=json.dumps(config)))
    drafted = llm.chat(chats, params, use_progress=False)
    assert [output.outputs[0].token_ids for output in drafted] == [output.outputs[0].token_ids for output in plain]
    stats = llm.stats()
    length = 1 + stats.spec_decode_accepted_tokens / stats.spec_decode_drafts
    assert length > 1.3
    assert length == pytest.approx(listener.evaluations[-1].acceptance_lengths[2], rel=0.05)


def same_head(folder: Path, other: Path) -> bool:
    """Whether two runs left the same files and the same state."""
    for name in ("model.safetensors", "config.json", "training/log.jsonl"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    one, two = (load_file(path / "training" / "state.safetensors") for path in (folder, other))
    return one.keys() == two.keys() and all(torch.equal(one[name], tensor) for name, tensor in two.items())


def test_a_run_that_broke_off_goes_on_from_its_checkpoint_bit_for_bit(finished, prompts, options, engine, tmp_path):
    def fail(step: int) -> None:
        if step > 25:
            raise OSError("no space left on device")

    whole, _ = finished
    with pytest.raises(OSError):
        train_drafter([prompts], tmp_path, options, engine, Listener(fail))
    listener = Listener()
    train_drafter([prompts], tmp_path, replace(options, resume=True), engine, listener)
    assert "going on from step 20 of 40" in listener.notes[-1]
    assert listener.answered == []
    assert same_head(tmp_path, whole)


def test_a_step_that_ctrl_c_comes_in_is_finished_and_kept(finished, prompts, options, engine, tmp_path):
    def press(step: int) -> None:
        if step == 30:
            signal.raise_signal(signal.SIGINT)

    whole, _ = finished
    rarely = replace(options, checkpoint_every=1000)
    first = Listener(press)
    with pytest.raises(KeyboardInterrupt):
        train_drafter([prompts], tmp_path, rarely, engine, first)
    assert "stopped after step 31 of 40: --resume" in first.notes[-1]
    assert read_draft_head_config(tmp_path, ARCHITECTURES).draft_vocab_size == 200
    assert (tmp_path / "model.safetensors").exists()
    second = Listener()
    train_drafter([prompts], tmp_path, replace(rarely, resume=True), engine, second)
    assert "going on from step 31 of 40" in second.notes[-1]
    assert same_head(tmp_path, whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_does_not_begin_over_another_one_and_not_go_on_with_other_options(finished, prompts, options, engine):
    out, _ = finished
    with pytest.raises(ConfigError, match="--resume"):
        train_drafter([prompts], out, options, engine, Listener())
    changed = replace(options, resume=True, learning_rate=1e-4)
    with pytest.raises(ConfigError, match=r"learning_rate +0.003 before, 0.0001 now"):
        train_drafter([prompts], out, changed, engine, Listener())
    longer = replace(options, resume=True, max_answer_tokens=41)
    with pytest.raises(ConfigError, match="answers to other prompts"):
        train_drafter([prompts], out, longer, engine, Listener())


def test_answers_that_are_there_are_not_generated_again(prompts, engine, tmp_path):
    """A file that lost its last line, as one does whose writer was killed, gets that answer alone."""
    few = replace(OPTIONS, epochs=1, invented_prompts=6, sampled_answers=1)
    first = Listener()
    train_drafter([prompts], tmp_path, few, engine, first)
    assert first.answered == ["prompts invented", "answers"]
    file = tmp_path / "training" / "answers.jsonl"
    complete = file.read_text()
    file.write_text(complete[: complete.rindex('"token_ids"')])
    (tmp_path / "training" / "state.safetensors").unlink()
    again = Listener()
    train_drafter([prompts], tmp_path, few, engine, again)
    assert again.answered == ["answers"]
    assert sorted(file.read_text().splitlines()) == sorted(complete.splitlines())


def test_held_out_prompts_are_never_trained_on(finished):
    _, listener = finished
    assert any(note.startswith("to train on: 12 prompts, 12 texts") for note in listener.notes)
    assert any(note.startswith("to evaluate on: 4 prompts, 4 texts") for note in listener.notes)


def test_without_a_file_some_of_the_prompts_are_held_out():
    data = [(("user", str(number)),) for number in range(50)]
    split = split_prompts(data, [], OPTIONS, seed=0)
    assert len(split.held_out) == 4
    assert sorted(split.held_out + split.training) == sorted(data)
    assert split == split_prompts(data, [], OPTIONS, seed=0)
    with pytest.raises(ConfigError, match="no prompt is left"):
        split_prompts(data[:5], data, OPTIONS, seed=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auxiliary_layers": (1, 2, 9)}, "layers that the drafter reads"),
        ({"greedy_answer": False}, "no answers"),
        ({"unroll": 0}, "--unroll"),
        ({"max_length": 10_000}, "--max-model-len"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_generated(changes, words, prompts, engine, tmp_path):
    with pytest.raises(ConfigError, match=words):
        train_drafter([prompts], tmp_path / "out", replace(OPTIONS, **changes), engine, Listener())
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_chat_template_cannot_invent_prompts(prompts, engine: EngineOptions, target, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in target.iterdir():
        (plain / file.name).write_bytes(file.read_bytes())
    (plain / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    with pytest.raises(ConfigError, match="cannot invent prompts"):
        train_drafter(
            [prompts],
            tmp_path / "out",
            replace(OPTIONS, invented_prompts=2),
            replace(engine, model=str(plain)),
            Listener(),
        )
