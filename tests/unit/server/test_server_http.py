"""Bodies, disconnects and streams at the level of ASGI messages."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from starlette.requests import ClientDisconnect, Request

from legato.server.body_reader import FULL_BODIES, BodyReader
from legato.server.disconnect import while_connected
from legato.server.errors import ApiError
from legato.server.sse import EventStream, error_event


def a_request(*messages):
    """A request whose client sends ``messages`` and then nothing."""
    queue = list(messages)

    async def receive():
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return Request({"type": "http", "headers": []}, receive)


def part(body, *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


async def read(request, limit):
    async with BodyReader(limit).read(request) as data:
        return data


GONE = {"type": "http.disconnect"}


def test_a_body_in_parts_is_joined():
    assert asyncio.run(read(a_request(part(b"ab"), part(b""), part(b"c", more=False)), 3)) == b"abc"


def test_a_body_over_the_limit_is_refused_after_the_rest_of_it_has_been_taken():
    request = a_request(part(b"abc"), part(b"d"), part(b"e" * 100, more=False), GONE)

    async def run():
        with pytest.raises(ApiError) as caught:
            await read(request, 3)
        assert caught.value.status == 413
        assert await request.receive() == GONE

    asyncio.run(asyncio.wait_for(run(), 60))


def test_bodies_that_are_too_much_together_are_refused_until_others_have_been_dealt_with():
    bodies = BodyReader(3)

    def full():
        return a_request(part(b"abc", more=False), GONE)

    async def run():
        async with AsyncExitStack() as held:
            for _ in range(FULL_BODIES):
                await held.enter_async_context(bodies.read(full()))
            with pytest.raises(ApiError) as caught:
                await held.enter_async_context(bodies.read(full()))
            assert caught.value.status == 503
            assert caught.value.headers.keys() == {"Retry-After", "Connection"}
        async with bodies.read(full()) as data:
            assert data == b"abc"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_of_bodies_that_come_at_once_as_many_are_read_as_may_be_held():
    bodies, count = BodyReader(10), 4 * FULL_BODIES

    async def one():
        body = [part(b"a" * 2) for _ in range(4)] + [part(b"aa", more=False), GONE]
        queue = list(body)

        async def receive():
            await asyncio.sleep(0)  # all of them come a part at a time
            return queue.pop(0)

        async with bodies.read(Request({"type": "http", "headers": []}, receive)) as data:
            await asyncio.sleep(0.05)
            return data

    async def run():
        return await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)

    ends = asyncio.run(run())
    assert FULL_BODIES - 1 <= ends.count(b"a" * 10) <= FULL_BODIES
    assert {end.status for end in ends if isinstance(end, Exception)} == {503}


def test_a_client_that_leaves_in_its_body_is_noticed():
    with pytest.raises(ClientDisconnect):
        asyncio.run(read(a_request(part(b"a"), GONE), 10))


def test_work_for_a_client_that_has_gone_is_cancelled_before_the_call_returns():
    cancelled = []

    async def work():
        try:
            await asyncio.sleep(10)
        finally:
            cancelled.append(True)

    with pytest.raises(ClientDisconnect):
        asyncio.run(while_connected(a_request(GONE), work()))
    assert cancelled == [True]


def test_the_result_and_the_error_of_work_are_passed_on():
    async def result():
        return 5

    async def error():
        raise KeyError("lost")

    assert asyncio.run(while_connected(a_request(), result())) == 5
    with pytest.raises(KeyError):
        asyncio.run(while_connected(a_request(), error()))


async def stream(source, request, sent, released):
    async with AsyncExitStack() as resources:
        resources.callback(released.append, True)
        response = EventStream(source, resources.pop_all())

    async def send(message):
        sent.append(message)

    await response(request.scope, request.receive, send)


def test_a_stream_sends_every_event_and_releases_its_resources():
    async def source():
        yield b"one"
        yield b"two"

    sent, released = [], []
    asyncio.run(stream(source(), a_request(), sent, released))
    assert sent[0]["status"] == 200
    assert [message["body"] for message in sent[1:]] == [b"one", b"two", b""]
    assert [message["more_body"] for message in sent[1:]] == [True, True, False]
    assert released == [True]


def test_a_stream_that_has_nothing_to_send_still_notices_that_its_reader_has_gone():
    closed = []

    async def source():
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    sent, released = [], []

    async def run():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return GONE

        asyncio.get_running_loop().call_later(0.05, gone.set)
        await stream(source(), Request({"type": "http", "headers": []}, receive), sent, released)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert (closed, released) == ([True], [True])
    assert [message["body"] for message in sent[1:]] == [b"one"]


def test_the_error_event_has_a_name_and_the_usual_body():
    data = error_event(ApiError(500, "lost", kind="server_error"))
    name, body, *rest = data.decode().split("\n")
    assert (name, rest) == ("event: error", ["", ""])
    assert json.loads(body.removeprefix("data: "))["error"]["message"] == "lost"
