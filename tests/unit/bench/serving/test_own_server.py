"""The server of a measurement: never left behind."""

import sys
from pathlib import Path

import pytest

from legato.bench.serving.own_server import running_server

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGINT))
print(f"process {os.getpid()}", file=sys.stderr, flush=True)
print("serving tiny at http://127.0.0.1:1", file=sys.stderr, flush=True)
while True:
    time.sleep(60)
"""


def test_a_second_ctrl_c_ends_the_waiting_and_the_server() -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), running_server([sys.executable, "-SEc", STUBBORN], told.append) as address:
        assert address == "http://127.0.0.1:1"
    assert not Path(f"/proc/{told[0].split()[1]}").exists()
