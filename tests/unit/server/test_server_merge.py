import asyncio

import pytest

from legato.server.merge import merged


async def numbers(*items, pause=0.0, closed=None):
    try:
        for item in items:
            await asyncio.sleep(pause)
            yield item
    finally:
        if closed is not None:
            closed.append(items)


async def failing():
    await asyncio.sleep(0.01)
    raise KeyError("broken")
    yield


def test_items_of_all_streams_come_with_their_streams_number_and_in_its_order():
    async def run():
        return [pair async for pair in merged([numbers(1, 2, 3), numbers(), numbers(7, 8)])]

    pairs = asyncio.run(run())
    assert [item for number, item in pairs if number == 0] == [1, 2, 3]
    assert [item for number, item in pairs if number == 2] == [7, 8]
    assert len(pairs) == 5


def test_one_stream_alone_is_numbered_and_closed_too():
    closed = []

    async def run():
        assert [pair async for pair in merged([numbers(1, 2, closed=closed)])] == [(0, 1), (0, 2)]
        result = merged([numbers(3, 4, closed=closed)])
        assert await anext(result) == (0, 3)
        await result.aclose()
        with pytest.raises(KeyError, match="broken"):
            await anext(merged([failing()]))

    asyncio.run(run())
    assert closed == [(1, 2), (3, 4)]


def test_an_error_of_one_stream_ends_and_closes_the_others():
    closed = []

    async def run():
        async for _ in merged([numbers(1, 2, pause=5, closed=closed), failing()]):
            pass

    with pytest.raises(KeyError, match="broken"):
        asyncio.run(run())
    assert closed == [(1, 2)]


def test_closing_the_result_closes_all_streams():
    closed = []

    async def run():
        result = merged([numbers(1, 2, closed=closed), numbers(3, pause=5, closed=closed)])
        assert await anext(result) == (0, 1)
        await result.aclose()
        assert sorted(closed) == [(1, 2), (3,)]

    asyncio.run(run())
