"""The GPU that these tests are for, and the backends that its machine has."""

from pathlib import Path

import pytest

from legato.attention.registry import BACKENDS
from legato.device.protocol import Device
from legato.device.registry import open_device
from legato.errors import ConfigError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", autouse=True)
def device() -> Device:
    try:
        return open_device("cuda")
    except ConfigError as error:
        pytest.skip(error.summary)


@pytest.fixture(params=[name for name in BACKENDS if name != "reference"])
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each registered backend but the oracle."""
    name: str = request.param
    return name
