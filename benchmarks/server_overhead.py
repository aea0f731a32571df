"""What the server adds to its engine: time per token, and the tokens per second that it can stream.

    python benchmarks/server_overhead.py [--seconds 5] [--save FILE.json]
    python benchmarks/server_overhead.py --model MODEL --concurrency 256 --num-requests 512 [-- ENGINE OPTIONS]

Without a model, the engine's core computes nothing and its steps take exactly so long, so that what is left is the
server's, on any machine. One stream tells what the server adds to a token; many streams tell how many tokens it
passes on, each in an event of its own or, where the server is behind, several in one. ``server_us_per_event`` is its
processor time: its inverse is what one core can stream. The client counts bytes in a process of its own.

With a model, ``legato bench throughput`` in one process and ``legato bench serve`` through HTTP run the same closed
loop, one after the other, and the second is set beside the first.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from served import Server, processor_seconds, serving

from legato.config.options import EngineOptions
from legato.results.place import this_commit, this_environment
from legato.results.rows_file import portable_command, write_rows

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
PACED = """
import sys
from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.server.lifecycle import serve
engine = EngineOptions(model=sys.argv[-1], served_model_name="paced")
sys.exit(serve(engine, ServerOptions(port=0, access_log=False), factory="paced_core:build"))
"""
CASES = ((1, 0.44), (256, 20.0), (256, 10.0), (256, 5.0))
"""Streams, and milliseconds of a step."""
EVENT, LAST = b"data: ", b"data: [DONE]\n\n"
CLI = (sys.executable, "-m", "legato.cli.main", "bench")


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedRow:
    """A server over a core that computes nothing."""

    case: str
    streams: int
    step_ms: float
    """Of the core, as it was measured in one process without a server."""
    tpot_ms: float
    """As the client saw it."""
    added_us_per_token: float
    tokens_per_s: float
    offered_tokens_per_s: float
    """What the core would give without a server."""
    tokens_per_event: float
    server_us_per_event: float
    engine_us_per_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRow:
    """An engine in one process, and behind its server."""

    case: str
    model: str
    concurrency: int
    num_requests: int
    input_len: int
    output_len: int
    in_process_tpot_ms: float
    http_tpot_ms: float
    tpot_ratio: float
    in_process_tok_per_s: float
    http_tok_per_s: float
    throughput_ratio: float


def paced_row(streams: int, asked_ms: float, seconds: float) -> PacedRow:
    """Measure one server of its own for about so long."""
    os.environ["SCRIPTED_STEP_S"] = str(asked_ms / 1e3)
    step_ms = stepped_ms(streams, round(seconds * 1e3 / asked_ms / 5))
    tokens = round(seconds * 1e3 / step_ms)
    with paced_server() as server:
        _ask(server.url, streams, max(2, tokens // 5))
        before = processor_seconds(server.pid), processor_seconds(server.engine_pid)
        first, last, events = _ask(server.url, streams, tokens)
        at_server = processor_seconds(server.pid) - before[0]
        at_engine = processor_seconds(server.engine_pid) - before[1]
    tpot_ms = (last - first) / (tokens - 1) * 1e3
    return PacedRow(
        case=f"paced-{streams}-{asked_ms:g}ms",
        streams=streams,
        step_ms=step_ms,
        tpot_ms=tpot_ms,
        added_us_per_token=(tpot_ms - step_ms) * 1e3,
        tokens_per_s=streams / tpot_ms * 1e3,
        offered_tokens_per_s=streams / step_ms * 1e3,
        tokens_per_event=streams * tokens / events,
        server_us_per_event=at_server / events * 1e6,
        engine_us_per_step=at_engine / tokens * 1e6,
    )


def stepped_ms(streams: int, steps: int) -> float:
    """Return how long a step of the core takes in this process."""
    import paced_core

    from legato.flow.request import Request
    from legato.flow.sampling_params import SamplingParams

    core = paced_core.build(EngineOptions(model="paced"))
    for number in range(streams):
        request = Request(
            request_id=str(number),
            prompt_token_ids=(1,),
            params=SamplingParams(),
            seed=0,
            stop_token_ids=frozenset(),
            max_tokens=steps,
            arrival=0.0,
        )
        core.add(request)
    started = time.perf_counter()
    while core.has_work:
        core.step()
    return (time.perf_counter() - started) / steps * 1e3


@contextlib.contextmanager
def paced_server() -> Iterator[Server]:
    """Start a server over the paced core, with a tokenizer of single bytes."""
    from tiny_model import write_tiny_model

    with tempfile.TemporaryDirectory() as folder:
        model = str(write_tiny_model(Path(folder)))
        with serving((model,), command=(sys.executable, "-c", PACED)) as server:
            yield server


def _ask(url: str, streams: int, tokens: int) -> tuple[float, float, int]:
    """Return when the first and the last bytes came, and how many events there were, as another process saw it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(read_streams, (url, streams, tokens))


def read_streams(url: str, streams: int, tokens: int) -> tuple[float, float, int]:
    """Run so many streams at once to their ends."""
    address = httpx.URL(url)
    body = json.dumps({"prompt": [2, 3], "max_tokens": tokens, "stream": True, "ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {address.host}\r\nContent-Length: {len(body)}\r\n\r\n"
    poll, ends, events, first = select.epoll(), {}, 0, 0.0
    sockets = [socket.create_connection((address.host, address.port)) for _ in range(streams)]
    opened = {each.fileno(): each for each in sockets}
    for number, each in opened.items():
        poll.register(number, select.EPOLLIN)
        each.sendall(head.encode() + body)
    while opened:
        for number, _ in poll.poll():
            data = opened[number].recv(1 << 16)
            first = first or time.perf_counter()
            events += data.count(EVENT)
            ends[number] = (ends.get(number, b"") + data)[-2 * len(LAST) :]
            if not data or LAST in ends[number]:
                poll.unregister(number)
                opened.pop(number).close()
    return first, time.perf_counter(), events - streams


def overhead_row(typed: argparse.Namespace) -> OverheadRow:
    """Run one closed loop in one process and through HTTP."""
    lengths = ["--input-len", str(typed.input_len), "--output-len", str(typed.output_len)]
    number, engine = str(typed.num_requests), ["--model", typed.model, *typed.options]
    at_once = str(typed.concurrency)
    within = _bench("throughput", ["--concurrency", at_once, "--num-requests", number, *lengths, *engine])
    load = ["--max-concurrency", at_once, "--num-prompts", number, "--warmup", at_once, "--ignore-eos"]
    through = _bench("serve", [*load, *lengths, *engine])
    if through["failed"]:
        raise SystemExit(f"requests failed: {through['failures']}")
    tpot, http_tpot = within["tpot_ms"]["median"], through["tpot_ms"]["median"]
    rate, http_rate = within["output_tok_per_s"], through["output_tok_per_s"]
    return OverheadRow(
        case=f"http-{at_once}",
        model=within["model"],
        concurrency=typed.concurrency,
        num_requests=typed.num_requests,
        input_len=typed.input_len,
        output_len=typed.output_len,
        in_process_tpot_ms=tpot,
        http_tpot_ms=http_tpot,
        tpot_ratio=http_tpot / tpot,
        in_process_tok_per_s=rate,
        http_tok_per_s=http_rate,
        throughput_ratio=http_rate / rate,
    )


def _bench(command: str, arguments: Sequence[str]) -> dict:
    """Return the row of a measurement in a process of its own, which gives the device back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        subprocess.run([*CLI, command, *arguments, "--output", str(path)], check=True, stdout=subprocess.DEVNULL)
        [row] = json.loads(path.read_text())["rows"]
        return row


def main() -> None:
    """Measure, print, and write the rows where asked to."""
    parser = argparse.ArgumentParser(description="What the server adds to its engine.")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each paced case")
    parser.add_argument("--model", help="a real engine instead of a paced one")
    for name, default in (("concurrency", 1), ("num-requests", 8), ("input-len", 128), ("output-len", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu", help="as the result file names it")
    parser.add_argument("--save", type=Path, help="add the rows to this result file")
    parser.add_argument("options", nargs="*", help="options of the engine, behind --")
    typed = parser.parse_args()
    sys.path.append(str(SUPPORT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))
    cases = [overhead_row(typed)] if typed.model else [paced_row(*case, typed.seconds) for case in CASES]
    for row in cases:
        print(json.dumps(asdict(row), indent=2))
    if typed.save:
        command = portable_command(sys.argv[1:], program=("python", "benchmarks/server_overhead.py"))
        place = this_environment(typed.device)
        write_rows(typed.save, cases, environment=place, command=command, commit=this_commit(), append=True)


if __name__ == "__main__":
    main()
