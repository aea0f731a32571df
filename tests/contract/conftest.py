"""Devices that a contract is checked on."""

import pytest

from legato.device.protocol import Device
from legato.device.registry import open_device
from legato.errors import ConfigError


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device that this machine has; the recording one always."""
    try:
        return open_device(request.param)
    except ConfigError as error:
        pytest.skip(error.summary)
