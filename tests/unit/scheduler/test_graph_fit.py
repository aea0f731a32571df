"""Steps that would be padded are cut to the graph below, where that is worth it."""

import pytest
from simulated_device import output_alone, request
from simulated_engine import SimulatedEngine

from legato.graphs.ladder import ladder
from legato.scheduler.graph_fit import ANY_SIZE, GraphFit

SMALL = GraphFit(sizes=(4, 8, 16), least_tokens=4, most_padding=2)


@pytest.mark.parametrize(
    ("num_tokens", "excess"),
    [(0, 0), (1, 0), (3, 0), (4, 0), (5, 1), (6, 0), (8, 0), (9, 1), (13, 5), (14, 0), (16, 0), (17, 0)],
)
def test_a_step_is_cut_where_more_than_so_much_would_be_padding(num_tokens: int, excess: int) -> None:
    assert SMALL.excess(num_tokens) == excess


def test_small_steps_and_steps_without_graphs_are_never_cut() -> None:
    fit = GraphFit(sizes=ladder(8192))
    assert not any(map(fit.excess, range(1025)))
    assert not any(map(ANY_SIZE.excess, range(9000)))
    assert fit.excess(4097) == 1
    assert max(fit.excess(size) for size in range(8193)) < 0.125 * 8192


def test_the_last_prefill_leaves_what_does_not_fit_to_the_next_step_and_samples_there() -> None:
    engine = SimulatedEngine(max_num_batched_tokens=16, fit=SMALL)
    engine.add(request("a", (1, 2, 3), max_tokens=3), request("b", tuple(range(1, 7)), max_tokens=2))
    assert engine.run_widths() == [[("a", 3), ("b", 5)], [("a", 1), ("b", 1)], [("a", 1), ("b", 1)]]
    for name, asked in engine.requests.items():
        assert engine.output(name) == output_alone(asked, engine.max_model_len)
    engine.check_at_rest()


def test_a_prefill_that_is_all_beyond_the_graph_is_not_taken_out() -> None:
    engine = SimulatedEngine(max_num_batched_tokens=16, fit=SMALL)
    engine.add(request("a", tuple(range(1, 9)), max_tokens=1), request("b", (5,), max_tokens=1))
    assert engine.run_widths() == [[("a", 8), ("b", 1)]]


def test_decodes_are_never_cut() -> None:
    engine = SimulatedEngine(max_num_seqs=5, max_num_batched_tokens=16, fit=SMALL)
    engine.add(*(request(name, (1,), max_tokens=3) for name in "abcde"))
    assert [len(step) for step in engine.run_widths()] == [5, 5, 5]
