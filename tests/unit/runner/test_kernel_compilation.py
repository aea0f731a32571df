"""Which steps stand for all when kernels are compiled before the first, and that nothing is left of them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_engine import build, options, request, tokens, write_config

from legato.engine.kv_sizing import first_graphs, largest_step
from legato.engine.resolve import resolve
from legato.graphs.key import GraphKey
from legato.graphs.ladder import ladder
from legato.graphs.modes import GraphMode, SamplerVariant, Stage
from legato.kernels.linear_tilings import row_class
from legato.runner.kernel_compilation import ZeroedMemory, kinds, launch_every_kind

KEYS = [
    GraphKey(mode=GraphMode.FULL, num_tokens=width * size, num_reqs=size, query_len=width, sampler=sampler)
    for width in (1, 4)
    for size in ladder(256)
    for sampler in SamplerVariant
] + [GraphKey(mode=GraphMode.PIECEWISE, num_tokens=size) for size in ladder(2048)]


def test_every_key_has_one_of_its_kind_and_size() -> None:
    chosen = list(kinds(KEYS))
    assert len(chosen) < len(KEYS) / 2
    for key in KEYS:
        alike = [
            one
            for one in chosen
            if (one.mode, one.query_len, one.sampler) == (key.mode, key.query_len, key.sampler)
            and row_class(one.num_tokens) == row_class(key.num_tokens)
        ]
        assert alike, key


def test_sizes_between_powers_of_two_stand_for_each_other() -> None:
    keys = [GraphKey(mode=GraphMode.FULL, num_tokens=size, num_reqs=size, query_len=1) for size in (32, 40, 48, 64)]
    assert [key.num_tokens for key in kinds(keys)] == [32, 40]


def test_stages_of_a_round_each_stand_for_themselves() -> None:
    keys = [GraphKey(mode=GraphMode.FULL, num_tokens=8, num_reqs=8, query_len=1, stage=stage) for stage in Stage]
    assert list(kinds(keys)) == keys


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_every_kernel_that_a_start_launches_is_asked_for(tmp_path: Path) -> None:
    script = Path(__file__).with_name("kernels_of_a_start.py")
    beside = [script.parents[1] / "kernels", script.parents[2] / "support", os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, beside)), "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    assert all(line.endswith("not asked for: []") for line in lines), "\n".join(lines)


@pytest.mark.parametrize("drafts", [None, '{"method": "ngram", "num_speculative_tokens": 3}'])
def test_an_engine_serves_after_it_as_before(tmp_path: Path, drafts: str | None) -> None:
    folder = write_config(tmp_path)
    core = build(folder, prefix_caching=False, speculative_config=drafts)
    prompts = {"a": (5, 6, 7), "b": (50, 40, 30, 20, 10, 0)}

    def served() -> dict[str, list[int]]:
        return tokens(core, [request(name, prompt, max_tokens=6) for name, prompt in prompts.items()])

    expected, program = served(), core.runner.program
    layers = program.model.model.layers
    resolved = resolve(options(folder, speculative_config=drafts))
    launch_every_kind(resolved.device, program, first_graphs(resolved, program), largest_step(resolved))
    assert program.model.model.layers is layers
    assert not any(tensor.any() for tensor in program.state.tensors().values())
    assert served() == expected


def test_a_layer_of_each_window_stands_for_all(tmp_path: Path) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    folder = write_config(tmp_path, architectures=["Qwen2ForCausalLM"], num_hidden_layers=4, **windows)
    model = build(folder, graph_policy="none").runner.program.model
    with model.different_layers_alone():
        assert [layer.self_attn.layer.window for layer in model.model.layers] == [None, 8]
    assert len(model.model.layers) == 4


def test_what_does_not_fit_in_memory_is_left_to_who_runs_it_in_earnest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_config(tmp_path)
    core = build(folder)
    program, resolved = core.runner.program, resolve(options(folder))

    def too_large(*_: object) -> None:
        program.state.num_computed.fill_(3)
        raise torch.OutOfMemoryError("there is too little")

    monkeypatch.setattr(program, "forward", too_large)
    launch_every_kind(resolved.device, program, first_graphs(resolved, program), largest_step(resolved))
    assert not program.state.num_computed.any()


def test_new_memory_holds_zeros_and_no_other_does() -> None:
    with torch.inference_mode(), ZeroedMemory():
        ones = torch.ones(1 << 16)
        made = [torch.empty(1 << 16), ones.new_empty(1 << 16), torch.empty_like(ones), torch.empty_strided((9,), (1,))]
        assert not any(tensor.any() for tensor in made)
        assert ones.all()
