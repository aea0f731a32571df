from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import KEY, Server, running_server
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def options(tiny_model: Path) -> EngineOptions:
    return EngineOptions(model=str(tiny_model), served_model_name="tiny")


@pytest.fixture(scope="session")
def server(options: EngineOptions) -> Iterator[Server]:
    """A server without limits worth mentioning, whose engine counts upwards quickly."""
    with running_server(options) as running:
        yield running


@pytest.fixture(scope="session")
def narrow_server(tiny_model: Path) -> Iterator[Server]:
    """A server with a key, small limits and slow steps."""
    engine = EngineOptions(model=str(tiny_model), served_model_name="tiny", max_queue=4)
    with running_server(engine, step_s=0.05, api_key=KEY, max_body_bytes=10_000) as running:
        yield running
