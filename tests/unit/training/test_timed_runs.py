"""A run with ``max_minutes`` takes as many steps as fit, and says so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_listener import Listener, nothing

from legato.config.options import EngineOptions
from legato.errors import ConfigError
from legato.training.acceptance import Evaluation
from legato.training.run import train_drafter
from legato.training.settings import TrainingOptions
from legato.training.time_budget import Pace, StepTimer, Stopwatch, TimeBudget
from legato.training.trainer import Schedule

STEP_S, EVALUATION_S, SLOWER = 1.0, 5.0, 1.5
MINUTES = 4.0


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class SlowMachine(Listener):
    """Time passes with what a run tells of: answers, tens of steps, evaluations."""

    def __init__(
        self, answer_s: float = 0.0, at_step: Callable[[int], None] = nothing, slower_after: int = 10**6
    ) -> None:
        super().__init__(at_step)
        self.clock = Clock()
        self.stopwatch = Stopwatch(self.clock)
        self._answer_s, self._slower_after = answer_s, slower_after
        self._told = 0

    def answering(self, what: str, total: int) -> Callable[[int, int], None]:
        super().answering(what, total)

        def tell(done: int, num_tokens: int) -> None:
            self.clock.now += self._answer_s

        return tell

    def step(self, done: int, total: int, loss: float) -> None:
        self.clock.now += (done - self._told) * STEP_S * (1 if done <= self._slower_after else SLOWER)
        self._told = done
        super().step(done, total, loss)

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        self.clock.now += EVALUATION_S
        super().evaluated(step, evaluation)

    def used_s(self) -> float:
        return self.stopwatch.seconds()


@pytest.fixture(scope="module")
def options(held_out: Path) -> TrainingOptions:
    return TrainingOptions(
        held_out=(str(held_out),),
        max_length=96,
        max_answer_tokens=12,
        batch_tokens=128,
        epochs=60,
        draft_vocab_size=100,
        intermediate_size=16,
        unroll=1,
        warmup_steps=40,
        evaluate_every=50,
        checkpoint_every=40,
        max_minutes=MINUTES,
    )


def train(prompts: Path, out: Path, options: TrainingOptions, engine: EngineOptions, machine: SlowMachine) -> None:
    train_drafter([prompts], out, options, engine, machine, stopwatch=machine.stopwatch)


def rates(options: TrainingOptions, num_steps: int) -> list[float]:
    schedule = Schedule(num_steps=num_steps, warmup_steps=options.warmup_steps, learning_rate=options.learning_rate)
    return [schedule.at(step) for step in range(num_steps)]


@pytest.fixture(scope="module")
def timed(prompts, options, engine, tmp_path_factory) -> tuple[Path, SlowMachine]:
    out, machine = tmp_path_factory.mktemp("timed"), SlowMachine()
    train(prompts, out, options, engine, machine)
    return out, machine


def test_a_run_ends_within_its_minutes_and_uses_them(timed):
    _, machine = timed
    assert 0.85 * MINUTES * 60 < machine.used_s() < MINUTES * 60
    assert machine.evaluated_at[-1] == machine.total


def test_it_tells_how_many_steps_fit(timed):
    _, machine = timed
    (note,) = [note for note in machine.notes if "fit in" in note]
    assert note.startswith(f"{machine.total} of ")
    assert "steps fit in 4.0 minutes (" in note


def test_a_run_that_broke_off_goes_on_to_the_same_length(timed, prompts, options, engine, tmp_path):
    """Whatever its minutes say by then, and to the same weights."""

    def fail(step: int) -> None:
        if step == 60:
            raise OSError("no space left on device")

    whole, straight = timed
    with pytest.raises(OSError):
        train(prompts, tmp_path, options, engine, SlowMachine(at_step=fail))
    machine = SlowMachine()
    train(prompts, tmp_path, replace(options, resume=True, max_minutes=1.0), engine, machine)
    assert machine.total == straight.total
    assert any("was decided before" in note for note in machine.notes)
    one, two = (load_file(folder / "training" / "state.safetensors") for folder in (tmp_path, whole))
    assert all(torch.equal(one[name], tensor) for name, tensor in two.items())


def test_a_run_whose_steps_get_slower_still_ends_in_time(prompts, options, engine, tmp_path):
    machine = SlowMachine(slower_after=100)
    train(prompts, tmp_path, options, engine, machine)
    assert machine.used_s() < MINUTES * 60 + 10 * STEP_S * SLOWER  # this clock moves by ten steps at a time
    assert any("the time is over at step 1" in note for note in machine.notes)
    assert machine.evaluated_at[-1] == machine.total
    finished = SlowMachine()
    train(prompts, tmp_path, replace(options, resume=True), engine, finished)
    assert finished.losses == []


def test_the_time_before_counts_where_a_run_goes_on(timed):
    out, machine = timed
    stopwatch = Stopwatch(Clock())
    stopwatch.go_on(out / "training" / "seconds.json")
    assert stopwatch.seconds() == machine.used_s()


def test_a_run_never_takes_more_steps_than_its_epochs_have(prompts, options, engine, tmp_path):
    machine = SlowMachine()
    train(prompts, tmp_path, replace(options, epochs=6, max_minutes=60.0), engine, machine)
    (note,) = [note for note in machine.notes if "fit in" in note]
    assert note.startswith(f"{machine.total} of {machine.total} steps")


def test_answers_that_take_all_the_time_are_kept_and_gone_on_from(prompts, options, engine, tmp_path):
    """And so are the steps that were taken to see how long one is, where nothing else fits."""
    machine = SlowMachine(answer_s=30.0)
    with pytest.raises(ConfigError, match=r"answers after \d\.\d minutes; all of it is kept\n.*--resume with a larger"):
        train(prompts, tmp_path, options, engine, machine)
    assert MINUTES * 60 * 0.9 < machine.used_s() < MINUTES * 60 + 30
    machine = SlowMachine()
    with pytest.raises(ConfigError, match=r"11 steps, which show how long one takes, after"):
        train(prompts, tmp_path, replace(options, resume=True, max_minutes=4.2), engine, machine)
    machine = SlowMachine()
    train(prompts, tmp_path, replace(options, resume=True, max_minutes=7.0), engine, machine)
    assert "going on from step 11 of" in machine.notes[-2]
    assert machine.total > 50


def test_only_as_many_steps_fit_as_leave_time_for_what_comes_with_them():
    pace = Pace(unit_s=0.5, evaluation_s=7.0, checkpoint_s=3.0, evaluate_every=10, checkpoint_every=20)
    work = [2] * 100
    # 5 more steps end with an evaluation and a checkpoint; the 8th passes step 30, and evaluates once more.
    assert pace.steps_that_fit(work, 23, left_s=15.0) == 28
    assert pace.steps_that_fit(work, 23, left_s=17.9) == 30
    assert pace.steps_that_fit(work, 23, left_s=18.0 + 6.9) == 30
    assert pace.steps_that_fit(work, 23, left_s=18.0 + 7.0) == 31
    assert pace.steps_that_fit(work, 23, left_s=10.9) == 23
    assert pace.steps_that_fit(work, 23, left_s=1e9) == 100


def test_steps_are_timed_by_their_work_behind_a_few_that_get_warm():
    clock, waits = Clock(), []
    timer = StepTimer(TimeBudget(Stopwatch(clock), 1000.0), lambda: waits.append(clock.now))
    over = []
    for step in range(23):
        work = 100 + step
        clock.now += 50.0 if step < 3 else work * 0.01
        over.append(timer.is_over(work))
    assert over == [False] * 22 + [True]
    assert timer.unit_s == pytest.approx(0.01)
    assert len(waits) == 2


def test_on_a_slow_machine_fewer_steps_are_timed():
    clock = Clock()
    timer = StepTimer(TimeBudget(Stopwatch(clock), 10.0), lambda: None)
    steps = 0
    while not timer.is_over(4):
        clock.now += 40.0
        steps += 1
    assert steps < 6
    assert timer.unit_s == pytest.approx(10.0)


def test_the_rise_is_the_same_however_long_a_run_is(options):
    long = rates(options, 5000)
    assert rates(options, 90)[:40] == pytest.approx(long[:40])
    short = rates(options, 50)  # less than twice the warm-up
    assert short[:25] == pytest.approx(long[:25])
    assert short[25:] == sorted(short[25:], reverse=True)
    assert short[25] == max(short) < options.learning_rate
    assert 0 < short[-1] < 0.05 * short[25]


def test_a_number_of_minutes_that_is_none_is_refused(prompts, options, engine, tmp_path):
    with pytest.raises(ConfigError, match="--max-minutes is out of range"):
        train(prompts, tmp_path / "out", replace(options, max_minutes=0.0), engine, SlowMachine())
    assert not (tmp_path / "out").exists()
