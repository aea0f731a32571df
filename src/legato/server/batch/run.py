"""Answer a batch file. Owns how many requests run at once, and what happens when the engine ends.

Each line goes through the server's own application, in process and without a socket, so that its answer is what a
server would have given.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import httpx

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.engine.engine_client import DEFAULT_FACTORY
from legato.errors import ConfigError
from legato.server.app import create_app
from legato.server.batch.lines import BatchLine, BatchResponse, BatchRow, read_lines
from legato.server.batch.results_file import ResultsFile

RETRY_S = 0.2
"""How long a line waits that found no place: several outputs of one line may take more than one."""
QUEUE_FULL = "queue_full"

Report = Callable[[int, int], None]
"""Takes (rows that are there, lines)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """What to answer, and how."""

    input: Path
    output: Path
    max_concurrency: int
    options: ServerOptions


@dataclass(slots=True, kw_only=True)
class BatchCounts:
    """What became of the lines."""

    lines: int
    resumed: int = 0
    """Rows that an earlier run had left."""
    answered: int = 0
    failed: int = 0
    """Of those answered by this run, with an error."""


def run_batch(job: BatchJob, engine: EngineOptions, report: Report, *, factory: str = DEFAULT_FACTORY) -> BatchCounts:
    """Answer every line that has no row yet.

    Raises ConfigError for files that do not go together, EngineDeadError when the engine ends; a second call goes on.
    """
    if job.max_concurrency < 1:
        raise ConfigError("a batch runs at least one request at once", {"requested": job.max_concurrency})
    counts = BatchCounts(lines=sum(1 for _ in read_lines(job.input)))
    with ResultsFile(job.output) as results:
        for _ in _missing(job, results):
            asyncio.run(_answer_all(job, engine, results, counts, report, factory))
            break
        else:
            counts.resumed = len(results.done)
    return counts


def _missing(job: BatchJob, results: ResultsFile) -> Iterator[BatchLine]:
    """Yield the lines without a row; raises ConfigError where a row belongs to another line."""
    for line in read_lines(job.input):
        if line.id not in results.done:
            yield line
        elif results.done[line.id] != line.custom_id:
            raise ConfigError(
                "the results belong to another batch file",
                {
                    "requested": f"{job.input} into {job.output}",
                    "found": f"{line.id} is of custom_id {results.done[line.id]!r}",
                    "limit": f"custom_id {line.custom_id!r}",
                    "options": "another file of results",
                },
            )


async def _answer_all(
    job: BatchJob, engine: EngineOptions, results: ResultsFile, counts: BatchCounts, report: Report, factory: str
) -> None:
    counts.resumed = len(results.done)
    llm = await AsyncLLM.start(engine, factory=factory)
    try:
        transport = httpx.ASGITransport(create_app(llm, job.options))
        async with httpx.AsyncClient(transport=transport, base_url="http://legato", timeout=None) as client:
            lines = _missing(job, results)
            work = _Work(llm=llm, client=client, lines=lines, results=results, counts=counts, report=report)
            count = min(job.max_concurrency, llm.config.scheduler.max_queue)
            await _all_or_none([asyncio.ensure_future(work.run()) for _ in range(count)])
    finally:
        await llm.shutdown()


async def _all_or_none(runs: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all; raise the first error once the others are cancelled.

    Whoever went on beside the end of the engine would write that end down as the answer to its line.
    """
    try:
        await asyncio.gather(*runs)
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


@dataclass(slots=True, kw_only=True)
class _Work:
    """What the runs at once share; each takes the next line when its last one has a row."""

    llm: AsyncLLM
    client: httpx.AsyncClient
    lines: Iterator[BatchLine]
    results: ResultsFile
    counts: BatchCounts
    report: Report
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        for line in self.lines:
            row = await self._row(line)
            async with self.writing:  # in a thread: a slow disk must not hold up the other requests
                await asyncio.to_thread(self.results.append, row)
            self.counts.answered += 1
            self.counts.failed += row.response is None or row.response.status_code >= HTTPStatus.BAD_REQUEST
            self.report(len(self.results.done), self.counts.lines)

    async def _row(self, line: BatchLine) -> BatchRow:
        if line.error is not None:
            return BatchRow(id=line.id, custom_id=line.custom_id, error=line.error)
        answer = await self._asked(line)
        while answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE and _code(answer) == QUEUE_FULL:
            await asyncio.sleep(RETRY_S)
            answer = await self._asked(line)
        body = answer.json()
        response = BatchResponse(status_code=answer.status_code, request_id=body.get("id", ""), body=body)
        return BatchRow(id=line.id, custom_id=line.custom_id, response=response)

    async def _asked(self, line: BatchLine) -> httpx.Response:
        """Return the answer; raises EngineDeadError instead of an answer that only tells of it."""
        answer = await self.client.post(line.url, content=line.body)
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and self.llm.error is not None:
            raise self.llm.error
        return answer


def _code(answer: httpx.Response) -> object:
    return answer.json()["error"]["code"]
