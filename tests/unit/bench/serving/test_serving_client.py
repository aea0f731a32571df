"""The client against a server that is slow, fails, cuts streams and sends nonsense."""

import asyncio
import os
import signal
import threading
import time
from typing import ClassVar

import pytest
from scripted_http import CLOSE, DONE, OK, chunked, plain, scripted_server, stream, text_event, usage_event

from legato.bench.serving.client import Target
from legato.bench.serving.connection import Connection
from legato.bench.serving.load import LoadResult, run_load
from legato.bench.serving.prompt import Prompt
from legato.bench.serving.record import RequestRecord

SOON_S = 10.0
"""Beyond any delay between two threads, even on a busy machine."""


def ask(
    url: str, count: int = 1, *, send_times=None, max_concurrency=None, progress=lambda *_: None, **target
) -> LoadResult:
    prompts = [Prompt(content="hi", output_len=3)] * count
    times = [0.0] * count if send_times is None else send_times
    asked = Target(base_url=url, model="m", **target)
    return run_load(asked, prompts, times, max_concurrency=max_concurrency, progress=progress)


def only(result: LoadResult) -> RequestRecord:
    [record] = result.records
    return record


def test_each_token_has_the_time_at_which_it_arrived() -> None:
    with scripted_server(stream("a", "b", "c", wait_s=0.05)) as server:
        record = only(ask(server.url))
        tokens = server.sent[1:4]  # behind the headers
    assert (record.failure, record.input_tokens, record.output_tokens) == (None, 5, 3)
    assert record.counted_by_server and len(record.token_times) == 3
    for arrived, sent in zip(record.token_times, tokens, strict=True):
        assert sent < arrived < sent + SOON_S
    assert record.sent < server.received[0] < record.sent + SOON_S
    assert record.ttft_s > 0.05
    assert record.e2e_s == pytest.approx(record.ttft_s + 2 * record.tpot_s)


def test_a_stream_is_read_however_its_bytes_are_cut() -> None:
    whole = b"".join([text_event("é"), text_event("b", "stop"), usage_event(7, 2), DONE])
    pieces = [whole[byte : byte + 1] for byte in range(len(whole))]
    with scripted_server([OK, *pieces]) as server:
        record = only(ask(server.url))
    assert (record.failure, record.input_tokens, record.output_tokens, len(record.token_times)) == (None, 7, 2, 2)


def test_a_request_asks_for_what_was_set() -> None:
    with scripted_server(stream("a")) as server:
        ask(f"{server.url}/v1", api_key="secret", ignore_eos=True)
        ask(server.url, endpoint="chat", temperature=None)
    completion, chat = server.bodies
    assert completion == {
        "model": "m",
        "prompt": "hi",
        "max_tokens": 3,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert chat["messages"] == [{"role": "user", "content": "hi"}]
    assert "temperature" not in chat and "ignore_eos" not in chat
    assert server.heads[0].startswith("POST /v1/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer secret" in server.heads[0]
    assert server.heads[1].startswith("POST /v1/chat/completions ")
    assert "Authorization" not in server.heads[1]


def test_a_role_and_an_empty_end_are_no_tokens() -> None:
    def delta(value: str, finish: str = "null") -> bytes:
        return chunked(f'data: {{"choices":[{{"delta":{value},"finish_reason":{finish}}}]}}\n\n'.encode())

    events = [delta('{"role":"assistant","content":""}'), 0.05, delta('{"content":"a"}'), delta('{"content":""}')]
    thought = delta('{"reasoning_content":"hm"}')
    with scripted_server([OK, *events, thought, delta("{}", '"stop"'), DONE]) as server:
        record = only(ask(server.url, endpoint="chat"))
    assert record.failure is None
    assert len(record.token_times) == 3, "a text, half a character, a thought"
    assert record.ttft_s > 0.04
    assert (record.output_tokens, record.counted_by_server) == (3, False)


@pytest.mark.parametrize(("texts", "counted"), [("ab", 2), ("ab", 3), ("", 1), ("a", 3)])
def test_a_token_without_text_comes_with_the_end_where_the_server_counts_more(texts: str, counted: int) -> None:
    events = [text_event(text) for text in texts]
    with scripted_server([OK, *events, 0.05, text_event("", "length"), usage_event(5, counted), DONE]) as server:
        record = only(ask(server.url))
        ended = server.sent[1 + len(events)]
    assert (record.failure, record.output_tokens) == (None, counted)
    assert len(record.token_times) == len(events) + (counted > len(events))
    assert (record.token_times[-1] > ended) == (counted > len(events))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (plain("503 Service Unavailable", '{"error": {"message": "full"}}'), "HTTP 503: full"),
        (plain("500 Internal Server Error", "oh\n no"), "HTTP 500: oh no"),
        (plain("404 Not Found", ""), "HTTP 404"),
        ([OK, text_event("a"), CLOSE], "the stream ended early"),
        ([OK, text_event("a"), b"0\r\n\r\n"], "the stream ended early"),
        ([CLOSE], "connection closed without an answer"),
        ([OK, chunked(b"data: {not json\n\n"), DONE], "malformed event: "),
        ([OK, chunked(b'data: {"choices": 3}\n\n'), DONE], "malformed event: "),
        ([OK, text_event("a"), chunked(b'event: error\ndata: {"error":"dead"}\n\n'), CLOSE], "error event: dead"),
        ([OK, chunked(b'data: {"error":{"message":"no room"}}\n\n'), DONE], "error event: no room"),
        ([b"nonsense\r\n\r\n"], "malformed HTTP: "),
        ([OK, usage_event(5, 3), DONE], "no token came"),
    ],
)  # fmt: skip
def test_a_failure_has_its_reason_and_the_next_request_goes_on(script: list[object], reason: str) -> None:
    with scripted_server(script, stream("a", "b")) as server:
        failed, good = ask(server.url, 2, max_concurrency=1).records
    assert failed.failure is not None and failed.failure.startswith(reason)
    assert (good.failure, good.output_tokens) == (None, 2)


def test_a_server_that_falls_silent_is_given_up_but_a_slow_one_is_not() -> None:
    with scripted_server([OK, text_event("a"), 30.0]) as server:
        record = only(ask(server.url, stall_timeout_s=0.2))
    assert record.failure == "nothing came for 0.2 s"
    assert 0.2 <= record.ended - record.sent < SOON_S
    with scripted_server(stream(*"abcdef", wait_s=0.3)) as server:
        assert only(ask(server.url, stall_timeout_s=1.5)).failure is None


def test_nobody_listening_is_a_failure_of_each_request() -> None:
    with scripted_server(stream("a")) as server:
        url = server.url
    result = ask(url, 3)
    assert [record.failure.split(":")[0] for record in result.records] == ["no connection"] * 3


def test_a_connection_lost_before_its_first_request_is_a_failure_and_not_a_wait() -> None:
    class Told(Connection):
        lost: asyncio.Event

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.lost.set()

    class Ends:
        reasons: ClassVar[list[str | None]] = []

        def on_end(self, reason: str | None) -> None:
            self.reasons.append(reason)

    async def run() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            Told.lost = asyncio.Event()
            _, connection = await asyncio.get_running_loop().create_connection(Told, *server.sockets[0].getsockname())
            await Told.lost.wait()
            connection.send(b"POST / HTTP/1.1\r\n\r\n", Ends())  # type: ignore[arg-type]

    asyncio.run(run())
    assert Ends.reasons == ["connection closed without an answer"]


def test_connections_are_used_again_and_a_stale_one_is_replaced() -> None:
    with scripted_server(stream("a")) as server:
        ask(server.url, 5, max_concurrency=1)
        assert server.connections == 1
    with scripted_server([*stream("a"), CLOSE], stream("b")) as server:
        result = ask(server.url, 2, send_times=[0.0, 0.15])
        assert [record.failure for record in result.records] == [None, None]
        assert server.connections == 2


def test_no_more_requests_than_allowed_are_open_at_once() -> None:
    with scripted_server(stream("a", wait_s=0.1)) as server:
        result = ask(server.url, 12, max_concurrency=3)
        assert server.most_at_once == 3
    assert len(result.records) == 12
    waited = [record.sent - result.started for record in result.records]
    assert max(waited) > 3 * 0.1, "three rounds came before"
    assert sorted(record.late_s for record in result.records)[6] < 0.1, "waiting for a place is not being late"
    assert min(record.late_s for record in result.records) >= 0


def test_requests_are_sent_at_their_times() -> None:
    times = [0.0, 0.03, 0.04, 0.12]
    with scripted_server(stream("a")) as server:
        result = ask(server.url, 4, send_times=times)
    due = sorted(record.due - result.started for record in result.records)
    assert due == pytest.approx(times)
    assert all(0 <= record.late_s < SOON_S for record in result.records)
    assert result.seconds >= 0.12 and result.loop_lags_s


def test_ctrl_c_ends_a_run_and_leaves_what_there_is() -> None:
    interrupting = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    with scripted_server(stream("a"), [OK, 30.0]) as server:
        begun = time.monotonic()
        result = ask(server.url, 5, max_concurrency=1, progress=lambda *_: interrupting.start())
    assert time.monotonic() - begun < 20
    assert (len(result.records), result.unfinished) == (1, 4)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
