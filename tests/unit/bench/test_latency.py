"""The arithmetic of a latency measurement, on engines whose times are known."""

import pytest

from legato.bench.contestant import Prompts, StepCounts, Timing
from legato.bench.latency import Workload, measure
from legato.bench.subject import Subject


class Steady:
    """An engine that takes the same time for every step, and writes down the prompts that it was given."""

    def __init__(self, name: str, step_s: float, token: int = 7) -> None:
        self.name = name
        self.subject = Subject(engine=name, version="1", model="m", dtype="float32")
        self.step_s = step_s
        self.token = token
        self.seen: list[Prompts] = []

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        self.seen.append(tuple(prompts))
        tokens = tuple((self.token,) * output_len for _ in prompts)
        return Timing(
            first_token_s=self.step_s,
            total_s=self.step_s * output_len,
            token_ids=tokens,
            host_ms_per_step=len(self.seen) / 1e3,
        )

    def counts(self) -> StepCounts:
        return StepCounts(steps={"target full": len(self.seen)})


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
    assert row.tpot_ms == pytest.approx(10)
    assert row.output_tok_per_s == pytest.approx(400)


def test_a_row_names_its_case_by_prefix_and_batch_size() -> None:
    rows = measure([Steady("engine", 0.01)], workload(case_prefix="eager"))
    assert [row.case for row in rows] == ["eager-b1", "eager-b4"]


def test_the_hosts_share_of_a_step_is_the_median_over_the_turns_that_count() -> None:
    [row] = measure([Steady("engine", 0.01)], workload(batch_sizes=(1,), turns=3, warmup=2))
    assert row.host_ms_per_step == pytest.approx(0.004)


def test_progress_is_told_every_turn_from_0_up() -> None:
    told: list[int] = []
    measure([Steady("engine", 0.01)], workload(), lambda done, _: told.append(done))
    assert told == list(range(workload().num_turns))


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
