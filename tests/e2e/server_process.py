"""Start and stop a real server process for tests."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions

SUPPORT = Path(__file__).parents[1] / "support"
START_S = 180
SCRIPT = """
import json, sys
from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.server import serve
engine, server, factory = json.loads(sys.argv[1])
sys.exit(serve(EngineOptions(**engine), ServerOptions(**server), factory=factory))
"""
SCRIPTED = "scripted_core:build"
KEY = "a secret key"
CLIENT = httpx.Client(timeout=60)
"""For every server: its connections are used again, and it waits longer than any busy machine takes."""
REAL = "legato.engine.bootstrap:build_engine"


@dataclass
class Server:
    """A running server process."""

    process: subprocess.Popen
    reader: threading.Thread | None = None
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Signal the server and its engine, as terminals and service managers do."""
        os.killpg(self.process.pid, number)

    def exit_code(self, timeout: float = 60) -> int:
        return self.process.wait(timeout)

    def has_logged(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def engine_pid(self) -> int:
        """Find the engine among the server's child processes."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        [engine] = [int(child) for child in children if "engine_process" in Path(f"/proc/{child}/cmdline").read_text()]
        return engine


@contextmanager
def running_server(
    engine: EngineOptions, *, factory: str = SCRIPTED, step_s: float = 0.002, tracebacks: bool = False, **server_options
) -> Iterator[Server]:
    """Start a server on a free port, wait until it serves, and end it. Its log holds no traceback, unless foreseen."""
    options = asdict(ServerOptions(port=0, **server_options))
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "SCRIPTED_STEP_S": str(step_s), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps([asdict(engine), options, factory])]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    server = Server(process)
    try:
        server.url = wait_for_url(server)
        yield server
    finally:
        process.kill()
        process.wait()
        if server.reader is not None:
            server.reader.join()
    log = "".join(server.lines)
    assert tracebacks or not re.search("Traceback|never retrieved|never awaited", log), log


def wait_for_url(server: Server) -> str:
    """Read the log until the server tells its address; a thread goes on reading, so that the pipe never fills."""
    urls: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert server.process.stderr is not None
        for line in server.process.stderr:
            server.lines.append(line)
            if found := re.search(r"serving .* at (http://\S+)", line):
                urls.put(found[1])
        urls.put(None)

    server.reader = threading.Thread(target=read, daemon=True)
    server.reader.start()
    url = urls.get(timeout=START_S)
    assert url is not None, "the server ended while starting:\n" + "".join(server.lines)
    return url


def eventually(condition, *, within: float = 30.0) -> bool:
    """Return whether ``condition()`` becomes true in time: as a rule at once, but on a busy machine nobody knows."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
