"""The arithmetic of a latency measurement, on engines whose times are known."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from legato.bench.contestant import Prompts, Timing
from legato.bench.latency import Workload, measure
from legato.bench.result_file import LatencyResult, read_result
from legato.results.place import Environment, this_commit, this_environment
from legato.results.result_file import write_result

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


class Steady:
    """An engine that takes the same time for every step, and writes down the prompts that it was given."""

    def __init__(self, name: str, step_s: float, token: int = 7) -> None:
        self.name = name
        self.step_s = step_s
        self.token = token
        self.seen: list[Prompts] = []

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        self.seen.append(tuple(prompts))
        tokens = tuple((self.token,) * output_len for _ in prompts)
        return Timing(first_token_s=self.step_s, total_s=self.step_s * output_len, token_ids=tokens)

    def graph_steps(self) -> Mapping[str, int]:
        return {"target full": len(self.seen)}


def workload(**changes: object) -> Workload:
    values: dict[str, object] = {"batch_sizes": (1, 4), "input_len": 8, "output_len": 5, "turns": 3, "warmup": 1}
    return Workload(vocab_size=100, **(values | changes))  # type: ignore[arg-type]


def test_a_twice_as_fast_engine_has_a_speed_up_of_two() -> None:
    fast, slow = measure([Steady("fast", 0.01), Steady("slow", 0.02)], workload(batch_sizes=(4,)))
    [over_slow], [over_fast] = fast.speed_ups, slow.speed_ups
    assert over_slow.over == "slow"
    assert over_slow.total.median == over_slow.per_token.min == pytest.approx(2.0)
    assert over_fast.total.max == pytest.approx(0.5)


def test_a_row_states_milliseconds_per_token_and_tokens_of_the_whole_batch_per_second() -> None:
    _, row = measure([Steady("engine", 0.01)], workload())
    assert (row.batch_size, row.turns) == (4, 3)
    assert row.prefill_ms == pytest.approx(10)
    assert row.ms_per_token == pytest.approx(10)
    assert row.tokens_per_s == pytest.approx(400)


def test_engines_take_turns_on_the_same_prompts_and_no_prompt_comes_twice() -> None:
    first, second = Steady("first", 0.01), Steady("second", 0.01)
    measure([first, second], workload())
    prompts = [prompt for batch in first.seen for prompt in batch]
    assert first.seen == second.seen
    assert len(set(prompts)) == len(prompts) == (1 + 4) * (3 + 1)


def test_a_warm_up_turn_is_not_counted() -> None:
    [row] = measure([Steady("engine", 0.01)], workload(batch_sizes=(1,), turns=2, warmup=3))
    assert row.turns == 2
    assert row.graph_steps == {"target full": 5}


def test_engines_that_write_other_tokens_are_found_out() -> None:
    row, _ = measure([Steady("right", 0.01), Steady("wrong", 0.01, token=8)], workload(batch_sizes=(1,)))
    assert row.speed_ups[0].equal_tokens == 0.0


def test_a_result_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = tuple(measure([Steady("fast", 0.01), Steady("slow", 0.02)], workload()))
    environment = this_environment("cpu")
    result = LatencyResult(
        environment=environment,
        command="legato bench latency",
        commit=this_commit(),
        model="m",
        dtype="float32",
        rows=rows,
    )
    write_result(result, tmp_path / "new" / "result.json")
    assert read_result(tmp_path / "new" / "result.json") == result
    assert isinstance(environment, Environment)
    assert environment.torch_threads >= 1


def test_a_result_file_of_another_form_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"environment": {"processor": 3}}')
    with pytest.raises(msgspec.ValidationError, match="environment"):
        read_result(path)


def test_every_committed_latency_result_has_the_form() -> None:
    for path in RESULTS.glob("latency*.json"):
        assert read_result(path).rows
