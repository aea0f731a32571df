"""A soak: a server under random requests for minutes or hours, each answer held to the one that it gave alone.

    python benchmarks/soak.py --minutes 30 [--seed 0] [--save FILE] [-- SERVE OPTIONS]
    python benchmarks/soak.py --minutes 30 --base-url http://127.0.0.1:8000

Questions of every kind (soak_questions.py) are first asked one at a time, then at random for as long as was asked for:
streamed or whole, some by clients who leave in the middle, between requests that must be refused, now and then in a
burst that the queue cannot hold. Exit code 1, and the reason, if an answer was wrong, a request hung or failed, the
server's log tells of an error nobody took care of, or memory, blocks, connections and places did not come back.
With --base-url nothing is known of the server's processes, and their memory is not watched.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

from served import Server, serving
from soak_client import VIOLATIONS, Answer, Client, Ended, Manner, Outcome
from soak_questions import Question, Sizes, bad_requests, draw_questions
from soak_watch import Watch, leaks

from legato.results.place import this_commit, this_environment
from legato.results.rows_file import model_name, portable_command, write_rows

DETAILS_KEPT = 20
OWN_QUEUE = 32
OWN_OPTIONS = ("--max-queue", str(OWN_QUEUE), "--max-num-seqs", "8")
BAD_SHARE, LEAVING_SHARE = 0.1, 0.2
BURST_EVERY_S = 60.0
BURST = OWN_QUEUE + 16
SETTLE_S = 30.0
"""How long the server may take to be idle after the last request."""


class Soak:
    """One run against one server."""

    def __init__(self, client: Client, watch: Watch, random: Random, options: argparse.Namespace) -> None:
        self._client, self._watch, self._random, self._options = client, watch, random, options
        self._slots = asyncio.Semaphore(options.in_flight)
        self._running: set[asyncio.Task[None]] = set()
        self._expected: list[tuple[Question, Answer]] = []
        self._bad = bad_requests(options.max_model_len)
        self.counts: Counter[tuple[str, str]] = Counter()
        """(kind of request, outcome) -> how many."""
        self.details: list[str] = []
        """Of what must not happen."""

    async def learn(self) -> None:
        """Ask every question alone, and keep the answer."""
        questions = draw_questions(self._random, self._options.questions, Sizes.of(self._options.max_model_len))
        for number, question in enumerate(questions, start=1):
            self._expected.append((question, await self._client.answer(question)))
            if number % 50 == 0:
                self._report(f"{number} of {len(questions)} questions asked alone")

    async def run(self) -> None:
        """Send requests until the time is over, then wait for the last of them."""
        began = time.monotonic()
        ends, burst, report = began + self._options.minutes * 60, began + BURST_EVERY_S / 3, began
        while (now := time.monotonic()) < ends:
            if now >= burst:
                burst += BURST_EVERY_S
                for _ in range(BURST):
                    self._spawn("in a burst", self._ask_one(leaving=False))
            await self._slots.acquire()
            self._spawn(*self._next(), slot=True)
            await asyncio.sleep(self._random.expovariate(self._options.rate))
            if time.monotonic() >= report:
                report += 15.0
                self._report(f"{(time.monotonic() - began) / 60:.1f} min: {self._told()}; {self._watch.told()}")
        await asyncio.gather(*self._running)

    def _next(self) -> tuple[str, Coroutine[Any, Any, tuple[str, Ended]]]:
        if self._random.random() < BAD_SHARE:
            return "bad", self._ask_badly()
        return "question", self._ask_one(leaving=self._random.random() < LEAVING_SHARE)

    def _spawn(self, name: str, work: Coroutine[Any, Any, tuple[str, Ended]], *, slot: bool = False) -> None:
        task = asyncio.create_task(self._count(work, slot=slot), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _count(self, work: Coroutine[Any, Any, tuple[str, Ended]], *, slot: bool) -> None:
        try:
            kind, ended = await work
        finally:
            if slot:
                self._slots.release()
        self.counts[kind, ended.outcome] += 1
        if ended.outcome in VIOLATIONS:
            self.violation(f"{ended.outcome}: {ended.detail}")

    def violation(self, text: str) -> None:
        """Write down what must not happen."""
        self._report(f"VIOLATION {text}")
        if len(self.details) < DETAILS_KEPT:
            self.details.append(text)

    async def _ask_badly(self) -> tuple[str, Ended]:
        return "bad", await self._client.ask_badly(self._random.choice(self._bad))

    async def _ask_one(self, *, leaving: bool) -> tuple[str, Ended]:
        question, expected = self._random.choice(self._expected)
        stream = self._random.random() < 0.6
        manner = Manner(stream=stream)
        if leaving and stream and self._random.random() < 0.6:
            manner = Manner(stream=True, leaves_after_events=self._random.randint(1, 12))
        elif leaving:
            manner = Manner(stream=stream, leaves_after_s=self._random.expovariate(1.5))
        return question.kind, await self._client.ask(question, expected, manner)

    async def settle(self) -> None:
        """Wait until the server is idle; see that every place in its queue is free again."""
        await self._client.renew()
        deadline = time.monotonic() + SETTLE_S
        while not await self._watch.is_idle() and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        if not await self._watch.is_idle():
            self.violation(f"not idle {SETTLE_S:g} s after the last request: {self._watch.told()}")
        for question, expected in self._expected[:: max(1, len(self._expected) // 20)]:
            ended = await self._client.ask(question, expected, Manner(stream=False))
            self.counts["alone, at the end", ended.outcome] += 1
            if ended.outcome is not Outcome.RIGHT:
                self.violation(f"alone, at the end: {ended.detail}")
        if self._watch.server is not None:
            await self._fill_the_queue()

    async def _fill_the_queue(self) -> None:
        body = {"prompt": "One", "max_tokens": 1, "n": OWN_QUEUE, "seed": 1, "temperature": 1}
        try:
            await self._client.answer(Question(kind="all places", route="/v1/completions", body=body))
        except Exception as error:  # whatever it is: places were not given back
            self.violation(f"not every place in the queue is free: {error}")

    def _told(self) -> str:
        outcomes: Counter[str] = Counter()
        for (_, outcome), count in self.counts.items():
            outcomes[outcome] += count
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))

    def _report(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


async def soak(url: str, server: Server | None, options: argparse.Namespace) -> dict[str, Any]:
    """Run a soak and return its row."""
    client, began = Client(url), time.monotonic()
    async with contextlib.AsyncExitStack() as resources:
        resources.push_async_callback(client.close)
        model = await client.model()
        options.max_model_len = model["max_model_len"]
        watch = Watch(client, server)
        run = Soak(client, watch, Random(options.seed), options)
        await run.learn()
        await watch.sample()
        started = await watch.sample()
        sampling = asyncio.create_task(watch.keep_sampling(options.minutes * 60))
        await run.run()
        sampling.cancel()
        await run.settle()
        ended = await watch.sample()
    for leak in leaks(watch.samples, started, ended):
        run.violation(leak)
    for line in server.faults_in_log if server is not None else ():
        run.violation(f"in the server's log: {line}")
    return {
        "case": "soak",
        "engine": "legato",
        "model": model_name(model["id"]),
        "minutes": options.minutes,
        "seconds": round(time.monotonic() - began, 1),
        "seed": options.seed,
        "rate_per_s": options.rate,
        "in_flight": options.in_flight,
        "questions": options.questions,
        "requests": sum(run.counts.values()),
        "outcomes": [
            {"kind": kind, "outcome": str(outcome), "count": count}
            for (kind, outcome), count in sorted(run.counts.items())
        ],
        "wrong_answers": sum(count for (_, outcome), count in run.counts.items() if outcome is Outcome.WRONG),
        "stuck": sum(count for (_, outcome), count in run.counts.items() if outcome is Outcome.STUCK),
        "violations": run.details,
        "started": started,
        "ended": ended,
        "samples": watch.samples,
    }


def main() -> int:
    """Run a soak; return the exit code."""
    parser = argparse.ArgumentParser(description="A server under random requests, each answer checked.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second that arrive on average")
    parser.add_argument("--in-flight", type=int, default=24, help="requests at once, bursts aside")
    parser.add_argument("--questions", type=int, default=160, help="different questions")
    parser.add_argument("--base-url", help="a running server; without it one is started")
    parser.add_argument("--save", type=Path, help="where to write the result")
    parser.add_argument("serve", nargs="*", help="options of legato serve, behind --")
    options = parser.parse_args()
    if options.base_url is not None:
        row = asyncio.run(soak(options.base_url, None, options))
    else:
        with serving([*OWN_OPTIONS, *options.serve]) as server:
            row = asyncio.run(soak(server.url, server, options))
    if options.save is not None:
        place = this_environment("cpu")
        command = portable_command(sys.argv[1:], program=("python", "benchmarks/soak.py"))
        write_rows(options.save, [row], environment=place, command=command, commit=this_commit())
    return 1 if row["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
