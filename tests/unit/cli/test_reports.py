"""The speed line and the graph table."""

import io

from rich.console import Console

from legato.cli.sampling_options import SamplingOptions
from legato.cli.speed import Stopwatch
from legato.cli.tables import records_table, steps_table
from legato.observability.stats import EngineStats


def rendered(item: object) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(item)
    return text.getvalue()


def test_the_graph_table_shows_replays_most_frequent_first_and_steps_without_a_graph_with_their_reason() -> None:
    stats = EngineStats(
        graph_steps={"target full": 5, "target eager": 2},
        graph_replays={"target/full tokens=1": 1, "target/full tokens=2": 4},
        graph_fallbacks={"target batch_too_large": 2},
    )
    lines = [line for line in rendered(steps_table(stats)).splitlines() if line.startswith("│")]
    assert [line.split("│")[2].strip() for line in lines] == ["4", "1", "2", "2"]
    assert "target eager (no graph)" in lines[2]
    assert "why not full: batch_too_large" in lines[3]


def test_a_stopwatch_without_tokens_says_so() -> None:
    watch = Stopwatch()
    watch.see(0)
    assert watch.first_token is None
    assert watch.line() == "no tokens"


def test_the_speed_line_tells_when_the_first_token_came_and_tokens_per_second_over_all() -> None:
    watch = Stopwatch(started=10.0, first_token=10.5, last_token=12.0, num_tokens=20)
    assert watch.line() == "20 tokens · first after 500 ms · 10.0 tokens/s"


def test_outputs_that_came_in_one_piece_have_no_time_of_a_first_token() -> None:
    watch = Stopwatch()
    watch.finish(20)
    assert watch.line().startswith("20 tokens · ")
    assert "first after" not in watch.line()


def test_records_of_different_keys_line_up() -> None:
    text = rendered(
        records_table("Catalog", [{"mode": "full", "num_reqs": 4}, {"mode": "piecewise", "num_reqs": None}])
    )
    assert "num_reqs" in text
    assert "-" in text.splitlines()[-2]


def test_typed_sampling_is_greedy_unless_told_otherwise() -> None:
    params = SamplingOptions().params(seed=3)
    assert params.greedy
    assert params.seed == 3
    assert SamplingOptions(temperature=0.5, stop=("a,b",), n=2).params(seed=0).stop == ("a,b",)


def test_square_brackets_in_a_cell_are_shown_as_they_are() -> None:
    assert "legato[fa3]" in rendered(records_table("Backends", [{"reason": "pip install 'legato[fa3]'"}]))
