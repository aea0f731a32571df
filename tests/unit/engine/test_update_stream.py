"""What a reader of updates gets, and when."""

import asyncio

import pytest

from legato.engine.update_stream import UpdateStream
from legato.errors import EngineDeadError
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.sampling_params import SamplingParams


def stream_of(*request_ids: str) -> UpdateStream:
    return UpdateStream(
        [
            Request(
                request_id=request_id,
                prompt_token_ids=(1,),
                params=SamplingParams(),
                seed=0,
                stop_token_ids=frozenset(),
                max_tokens=8,
                arrival=0.0,
            )
            for request_id in request_ids
        ]
    )


def update(request_id: str, *token_ids: int, ended: bool = False) -> RequestUpdate:
    finish = FinishReason.LENGTH if ended else None
    return RequestUpdate(request_id=request_id, token_ids=token_ids, finish_reason=finish)


def test_updates_that_have_come_meanwhile_are_read_at_once_and_the_end_of_all_ends_the_stream() -> None:
    async def run() -> list[list[tuple[str, tuple[int, ...]]]]:
        stream = stream_of("a", "b")
        stream.put(update("a", 1))
        stream.put(update("b", 2, ended=True))
        read = [await anext(stream)]
        asyncio.get_running_loop().call_later(0.01, stream.put, update("a", 3, ended=True))
        read += [updates async for updates in stream]
        return [[(each.request_id, each.token_ids) for each in updates] for updates in read]

    assert asyncio.run(run()) == [[("a", (1,)), ("b", (2,))], [("a", (3,))]]


def test_a_reader_that_was_cancelled_loses_no_update() -> None:
    async def run() -> list[RequestUpdate]:
        stream = stream_of("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        stream.put(update("a", 1))
        return await anext(stream)

    assert [each.token_ids for each in asyncio.run(run())] == [(1,)]


def test_an_error_ends_the_stream_for_good() -> None:
    async def run() -> list[list[RequestUpdate]]:
        stream = stream_of("a", "b")
        stream.put(EngineDeadError("gone"))
        with pytest.raises(EngineDeadError, match="gone"):
            await anext(stream)
        return [updates async for updates in stream]

    assert asyncio.run(run()) == []
