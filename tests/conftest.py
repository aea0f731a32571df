"""What all tests share: support modules by name, a collector that is not in the way, how long servers are fuzzed."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> None:
    """Hide from the garbage collector what is there for good: the libraries.

    Every engine begins with a collection, which otherwise takes longer than to build a tiny model.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-seconds",
        type=int,
        default=None,
        metavar="N",
        help="Time of each fuzz of the server, from a new seed; default: a few seconds, the same requests each time.",
    )
