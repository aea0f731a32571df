"""What all tests share: support modules by name, a collector that is not in the way, how long servers are fuzzed."""

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

# No example fails for being slow on a busy machine, and all draw the same; --hypothesis-profile=new draws others.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", parent=settings.get_profile("new"), derandomize=True)
settings.load_profile("same")


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
