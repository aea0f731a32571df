"""``legato serve`` as a child process. Owns the process, its log, and what Linux tells of it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from legato.bench.serving.own_server import SERVING, stop

FAULTS_IN_LOG = re.compile(r"Traceback|never retrieved|never awaited")
LOG_LINES = 2000
STOP_S = 60.0
COMMAND = (sys.executable, "-c", "from legato.cli.main import main; main()", "serve")
MIB = 2**20


@dataclass(slots=True, kw_only=True)
class Server:
    """A running server and its two processes."""

    process: "subprocess.Popen[str]"
    url: str = ""
    engine_pid: int = 0
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    faults_in_log: list[str] = field(default_factory=list)
    """Lines that tell of an error nobody took care of."""

    @property
    def pid(self) -> int:
        """The process that speaks HTTP."""
        return self.process.pid

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Signal the server and its engine, as terminals and service managers do."""
        os.killpg(self.pid, number)

    def exit_code(self, timeout_s: float = STOP_S) -> int:
        """Return the exit code, when there is one; raises TimeoutExpired."""
        return self.process.wait(timeout_s)


@contextmanager
def serving(options: Sequence[str] = (), *, command: Sequence[str] = COMMAND) -> Iterator[Server]:
    """Start a server on a free port, wait until it serves, and end it; raises RuntimeError where it does not serve."""
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-access-log", *options],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    server = Server(process=process)
    serves = threading.Event()
    reader = threading.Thread(target=_read_log, args=(server, serves), daemon=True)
    reader.start()
    try:
        serves.wait()
        if not server.url:
            raise RuntimeError("the server did not start:\n" + "".join(server.log))
        server.engine_pid = _engine_of(process.pid)
        yield server
    finally:
        stop(process, within_s=STOP_S)
        reader.join()


def resident_mib(pid: int) -> float:
    """Return the memory that a process has in use, as far as no other process has it too."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024 / MIB


def open_files(pid: int) -> int:
    """Return how many file descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def processor_seconds(pid: int) -> float:
    """Return how long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_log(server: Server, serves: threading.Event) -> None:
    """Read the log to its end, so that the pipe never fills."""
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.log.append(line)
        if FAULTS_IN_LOG.search(line):
            server.faults_in_log.append(line.rstrip())
        if not serves.is_set() and (found := SERVING.search(line)):
            server.url = found[1]
            serves.set()
    serves.set()


def _engine_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(next(child for child in children if "engine_process" in Path(f"/proc/{child}/cmdline").read_text()))


def metric(text: str, name: str) -> float:
    """Return a metric of Legato's from the text of ``/metrics``, all its labels together."""
    values = re.findall(rf"^legato:{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))
