"""What all tests share: the support modules, importable by name, and how long servers are fuzzed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-seconds",
        type=int,
        default=None,
        metavar="N",
        help="Time of each fuzz of the server, from a new seed; default: a few seconds, the same requests each time.",
    )
