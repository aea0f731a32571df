"""Figures of a run, from records whose times are known."""

import pytest

from legato.bench.serving.load import LoadResult
from legato.bench.serving.measures import figures, parse_goodput, peak_concurrency, peak_output_tok_per_s
from legato.bench.serving.record import RequestRecord
from legato.errors import ConfigError


def record(
    sent: float, *arrivals: float, tokens: int | None = None, failure: str | None = None, **times
) -> RequestRecord:
    return RequestRecord(
        due=times.get("due", sent),
        sent=sent,
        ended=times.get("ended", arrivals[-1] if arrivals else sent),
        token_times=arrivals,
        input_tokens=10,
        output_tokens=len(arrivals) if tokens is None else tokens,
        counted_by_server=True,
        failure=failure,
    )


def result(*records: RequestRecord, seconds: float = 4.0, **others) -> LoadResult:
    return LoadResult(started=100.0, seconds=seconds, records=records, loop_lags_s=(0.001, 0.003), **others)


FAST = record(100.0, 100.1, 100.2, 100.3, due=99.99)
SLOW = record(101.0, 101.5, 102.5, tokens=5)
FAILED = record(101.0, 101.2, failure="HTTP 503", ended=101.3)


def test_throughput_and_tokens_are_those_of_requests_that_succeeded() -> None:
    found = figures(result(FAST, SLOW, FAILED, FAILED, unfinished=2), {})
    assert (found.num_requests, found.completed, found.failed, found.unfinished) == (6, 2, 2, 2)
    assert found.failures == {"HTTP 503": 2}
    assert (found.input_tokens, found.output_tokens, found.tokens_counted_by) == (20, 8, "server")
    assert (found.requests_per_s, found.output_tok_per_s, found.total_tok_per_s) == (0.5, 2.0, 7.0)


def test_latencies_have_their_definitions() -> None:
    found = figures(result(FAST, SLOW, FAILED), {})
    assert (found.ttft_ms.mean, found.ttft_ms.median) == pytest.approx((300, 300))
    assert found.ttft_ms.p99 == pytest.approx(100 + 0.99 * 400), "between two values, in proportion"
    assert found.tpot_ms.mean == pytest.approx((100 + 250) / 2), "five tokens in two chunks: four intervals"
    assert found.itl_ms.mean == pytest.approx((100 + 100 + 1000) / 3)
    assert found.itl_ms.median == pytest.approx(100)
    assert found.e2e_ms.mean == pytest.approx((300 + 1500) / 2)


def test_one_token_has_no_time_per_token() -> None:
    found = figures(result(record(100.0, 100.5)), {})
    assert (found.tpot_ms, found.itl_ms) == (None, None)
    assert found.e2e_ms.median == found.ttft_ms.median == pytest.approx(500)


def test_fairness_is_the_fastest_request_over_the_slowest_waiting_included() -> None:
    found = figures(result(FAST, SLOW, FAILED), {})
    assert found.fairness.fastest_tok_per_s == pytest.approx(3 / 0.3)
    assert found.fairness.slowest_tok_per_s == pytest.approx(5 / 1.5)
    assert found.fairness.ratio == pytest.approx(3.0)


def test_nothing_that_succeeded_is_a_row_too() -> None:
    found = figures(result(FAILED), {"ttft": 200.0})
    assert found.fairness is None
    assert (found.completed, found.requests_per_s, found.ttft_ms, found.goodput.share) == (0, 0.0, None, 0.0)
    nothing = figures(result(seconds=0.0, unfinished=3), {"ttft": 200.0})
    assert (nothing.num_requests, nothing.requests_per_s, nothing.client, nothing.goodput.share) == (3, 0.0, None, 0.0)


@pytest.mark.parametrize(
    ("targets", "kept"),
    [
        ({"ttft": 200.0}, 1),
        ({"ttft": 500.0}, 2),
        ({"tpot": 250.0}, 2),
        ({"tpot": 99.0}, 0),
        ({"ttft": 500.0, "e2e": 1400.0}, 1),
    ],
)
def test_goodput_counts_requests_that_keep_to_every_target(targets: dict[str, float], kept: int) -> None:
    slow = record(101.0, 101.5, 102.5, tokens=5)
    goodput = figures(result(FAST, slow, FAILED), targets).goodput
    assert goodput.requests_per_s == kept / 4
    assert goodput.share == pytest.approx(kept / 3)
    assert goodput.targets_ms == targets


def test_targets_are_read_however_they_are_set_apart() -> None:
    expected = {"ttft": 200.0, "tpot": 20.0, "e2e": 5000.0}
    assert parse_goodput(["ttft:200", "tpot:20", "e2e:5000"]) == expected
    assert parse_goodput(["ttft:200 tpot:20,e2el:5000"]) == expected
    assert parse_goodput([]) == {}
    for wrong in ("ttft", "ttft:", "ttft:x", "ttft:0", "itl:5", ":5", "ttft:nan"):
        with pytest.raises(ConfigError):
            parse_goodput([wrong])


def test_the_peak_is_how_many_were_open_at_once() -> None:
    spans = [(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (2.5, 2.6)]
    assert peak_concurrency(record(start, ended=end) for start, end in spans) == 3
    assert peak_concurrency([record(0.0, ended=1.0), record(1.0, ended=2.0)]) == 1
    assert peak_concurrency([]) == 0


def test_the_fullest_second_has_a_requests_tokens_spread_over_its_chunks() -> None:
    records = [record(100.0, 100.5, 101.5, 101.7, tokens=6), record(100.0, 101.9)]
    assert peak_output_tok_per_s(records, 100.0) == 5.0
    assert peak_output_tok_per_s([record(100.0, 100.1, 100.2)], 100.0, 0.25) == 8.0


def test_what_the_client_added_is_told() -> None:
    client = figures(result(FAST, SLOW), {}).client
    assert client.sent_late_ms.mean == pytest.approx(5.0)
    assert client.max_sent_late_ms == pytest.approx(10.0)
    assert client.loop_lag_ms.median == pytest.approx(2.0)
    assert client.max_loop_lag_ms == pytest.approx(3.0)
