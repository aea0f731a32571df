"""When clients are looked at."""

import asyncio
import time

from legato.server.connection import LATE_S, keep_checking


class Watched:
    def __init__(self):
        self.checks = []

    def check(self, now):
        self.checks.append(now)


def test_nobody_is_dropped_for_what_the_server_was_late_to_read():
    async def run():
        watched = Watched()
        checking = asyncio.ensure_future(keep_checking({watched}, every_s=0.01))
        await asyncio.sleep(0.1)
        before = len(watched.checks)
        time.sleep(LATE_S + 0.1)  # the loop stands still
        stood_until = asyncio.get_running_loop().time()
        await asyncio.sleep(0.1)
        checking.cancel()
        return before, stood_until, watched.checks[before]

    before, stood_until, first_after = asyncio.run(run())
    assert before > 0
    assert first_after >= stood_until + 0.01
