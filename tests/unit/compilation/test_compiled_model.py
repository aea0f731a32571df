"""A model cut at its attention calls gives what the model gives, through any context and under every graph policy."""

import gc
from pathlib import Path

import pytest
import torch
from compiled_models import CPU, FAMILIES, MAX_TOKENS, as_traced, compiled, tiny
from dense_oracle import DenseContext
from tiny_engine import options, request, tokens, write_config

from legato.attention.protocol import AttentionLayer
from legato.compilation.compiled_model import compile_model
from legato.compilation.pieces import AttendCall, split
from legato.compilation.trace import trace
from legato.engine.bootstrap import build_engine, load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.flow.request import Request
from legato.graphs.modes import GraphPolicy
from legato.kernels.rotary import Rotation

SIZES = (2, 4, 8, 32)


def requests() -> list[Request]:
    lengths = (1, 5, 13, 20)
    prompts = [[(number * 31 + place * 7) % 96 for place in range(length)] for number, length in enumerate(lengths)]
    return [request(str(number), prompt, max_tokens=8) for number, prompt in enumerate(prompts)]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_compilation_gives_the_models_states_for_every_number_of_tokens(tmp_path: Path, family: str) -> None:
    model = tiny(tmp_path, family)
    split_model = compiled(model)
    with torch.inference_mode():
        for num_tokens in (1, 2, 3, 16, 64, 100):
            ids, positions = torch.arange(num_tokens) % 96, torch.arange(num_tokens)
            expected = model(ids, positions, DenseContext())
            given = split_model(ids, positions, DenseContext())
            torch.testing.assert_close(given, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("max_num_tokens", [1, 2, 3, 9, 17])
def test_few_tokens_at_most_are_served_too(tmp_path: Path, max_num_tokens: int) -> None:
    model = tiny(tmp_path)
    split_model = compile_model(model, CPU, as_traced, max_num_tokens=max_num_tokens)
    with torch.inference_mode():
        for num_tokens in (1, max_num_tokens):
            ids, positions = torch.arange(num_tokens), torch.arange(num_tokens)
            expected = model(ids, positions, DenseContext())
            torch.testing.assert_close(split_model(ids, positions, DenseContext()), expected, atol=1e-4, rtol=1e-4)


def test_pieces_of_equal_layers_are_compiled_once(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = compile_model(
        tiny(tmp_path, num_hidden_layers=6),
        CPU,
        as_traced,
        max_num_tokens=MAX_TOKENS,
        progress=lambda done, total: seen.append((done, total)),
    ).report
    assert (report.num_pieces, report.num_compiled) == (7, 3), "the first, the last, and all between two layers"
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_layer_of_another_shape_is_another_piece(tmp_path: Path) -> None:
    model = tiny(tmp_path, num_hidden_layers=6)
    model.model.layers[2].mlp.gate_up_proj.weight = torch.nn.Parameter(torch.rand(40, 32), requires_grad=False)
    model.model.layers[2].mlp.down_proj.weight = torch.nn.Parameter(torch.rand(32, 20), requires_grad=False)
    assert compiled(model).report.num_compiled == 4


def test_weights_are_inputs_of_a_piece_and_none_is_part_of_it(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    split_model = compiled(model)
    with torch.inference_mode():
        before = split_model(torch.arange(4), torch.arange(4), DenseContext())
        model.model.layers[1].mlp.down_proj.weight.mul_(3.0)
        after = split_model(torch.arange(4), torch.arange(4), DenseContext())
        torch.testing.assert_close(after, model(torch.arange(4), torch.arange(4), DenseContext()), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(before, after, atol=1e-3)


def test_pieces_and_attention_calls_alternate_and_no_piece_holds_one(tmp_path: Path) -> None:
    parts = split(trace(tiny(tmp_path, num_hidden_layers=3), CPU, MAX_TOKENS).graph)
    assert [isinstance(part, AttendCall) for part in parts] == [False, True] * 3 + [False]
    for piece in parts[::2]:
        assert "legato" not in piece.graph.code
        assert not list(piece.graph.parameters()) + list(piece.graph.buffers())


def test_each_layer_attends_through_the_context_of_the_call(tmp_path: Path) -> None:
    class Recorder(DenseContext):
        def __init__(self) -> None:
            self.calls: list[tuple[int, tuple[int, ...], bool]] = []

        def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
            self.calls.append((layer.index, tuple(heads.shape), rotation.norm is not None))
            return super().attend(layer, heads, rotation)

    split_model = compiled(tiny(tmp_path, "qwen3"))
    contexts = Recorder(), Recorder()
    with torch.inference_mode():
        for num_tokens, context in enumerate(contexts, start=3):
            split_model(torch.arange(num_tokens), torch.arange(num_tokens), context)
    assert [context.calls for context in contexts] == [
        [(layer, (num_tokens, 8, 8), True) for layer in range(2)] for num_tokens in (3, 4)
    ]


def test_a_value_is_forgotten_after_its_last_reader(tmp_path: Path) -> None:
    class Counter(DenseContext):
        def __init__(self) -> None:
            self.held: list[int] = []

        def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
            alive = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.shape == (53, 32)]
            self.held.append(len(alive))
            return super().attend(layer, heads, rotation)

    split_model, context = compiled(tiny(tmp_path, num_hidden_layers=6)), Counter()
    with torch.inference_mode():
        split_model(torch.arange(53), torch.arange(53), context)
    assert max(context.held) == context.held[0] == 1, "the sum so far"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"), num_hidden_layers=3, initializer_range=0.3)


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, list[int]]:
    return tokens(build_engine(options(folder, graph_policy="none")), requests())


@pytest.mark.parametrize("policy", GraphPolicy)
def test_every_policy_captures_around_the_pieces_and_gives_the_models_tokens(
    folder: Path, expected: dict[str, list[int]], policy: GraphPolicy
) -> None:
    engine_options = options(folder, graph_policy=str(policy), graph_sizes=SIZES, graph_strict=True)
    split_model = compiled(load_model(resolve(engine_options), BuildProgress(None)))
    core = build_engine(engine_options, model=split_model)
    assert tokens(core, requests()) == expected
    assert core.graph_report()["dropped"] == []
    modes = {mode for _, mode in core.step_log.steps}
    assert (
        modes
        == {
            GraphPolicy.NONE: {"eager"},
            GraphPolicy.PIECEWISE: {"piecewise"},
            GraphPolicy.FULL: {"full"},
            GraphPolicy.FULL_DECODE_ONLY: {"eager", "full"},
            GraphPolicy.FULL_AND_PIECEWISE: {"piecewise", "full"},
        }[policy]
    )


def test_a_piecewise_graph_has_a_segment_for_each_piece(folder: Path) -> None:
    engine_options = options(folder, graph_policy="piecewise", graph_sizes=(4,))
    split_model = compiled(load_model(resolve(engine_options), BuildProgress(None)))
    (graph,) = build_engine(engine_options, model=split_model).runner.graphs.store.graphs.values()
    assert len(graph.parts) == 2 * split_model.report.num_pieces - 1, "an attention call between each two"
