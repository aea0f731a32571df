"""What all tests share: support modules, devices, a collector that is not in the way, how long servers are fuzzed."""

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from legato.device.protocol import Device
from legato.device.registry import open_device
from legato.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent / "support"))

# No example fails for being slow on a busy machine, and all draw the same; --hypothesis-profile=new draws others.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", parent=settings.get_profile("new"), derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device that this machine has; the recording one always."""
    try:
        return open_device(request.param)
    except ConfigError as error:
        pytest.skip(error.summary)


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
