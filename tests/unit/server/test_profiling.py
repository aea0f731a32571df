"""Profiles: of a server's engine where a folder is given, and of a measurement."""

import asyncio
import json

import httpx
import pytest
from tiny_model import write_tiny_model
from typer.testing import CliRunner

from legato.cli.main import app
from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.server.app import create_app


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def operations(path):
    return {event["name"] for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"}


def serving(model, options, work):
    async def serve():
        llm = await AsyncLLM.start(EngineOptions(model=str(model), device="cpu", max_num_seqs=2, enforce_eager=True))
        try:
            transport = httpx.ASGITransport(create_app(llm, options))
            async with httpx.AsyncClient(transport=transport, base_url="http://legato") as client:
                await work(client)
        finally:
            await llm.shutdown()

    asyncio.run(asyncio.wait_for(serve(), 240))


def test_a_servers_engine_is_profiled_between_start_and_stop(model, tmp_path):
    async def work(client):
        assert (await client.post("/stop_profile")).status_code == 400
        assert (await client.post("/start_profile")).json() == {"status": "recording"}
        assert (await client.post("/start_profile")).status_code == 400
        assert (await client.post("/v1/completions", json={"prompt": [5, 6], "max_tokens": 3})).status_code == 200
        told = (await client.post("/stop_profile")).json()
        [path] = (tmp_path / "profiles").iterdir()
        assert told == {"status": "written", "file": str(path)}
        assert any(name.startswith("aten::") and "mm" in name for name in operations(path))
        assert (await client.post("/stop_profile")).status_code == 400

    serving(model, ServerOptions(profile_dir=str(tmp_path / "profiles")), work)


def test_without_a_folder_there_are_no_such_routes(model):
    async def work(client):
        for route in ("/start_profile", "/stop_profile"):
            assert (await client.post(route)).status_code == 404

    serving(model, ServerOptions(), work)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["latency", "--batch-size", "1", "--iterations", "1", "--warmup", "0"], "decode-b1-legato.json"),
        (["throughput", "--concurrency", "2", "--num-requests", "2", "--warmup", "0"], "closed-2.json"),
    ],
)
def test_a_measurement_leaves_a_profile_where_one_is_asked_for(model, tmp_path, arguments, name):
    lengths = ["--input-len", "4", "--output-len", "3", "--device", "cpu", "--enforce-eager", "--model", str(model)]
    run = CliRunner().invoke(app, ["bench", *arguments, *lengths, "--profile", str(tmp_path)], catch_exceptions=False)
    assert run.exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert any("mm" in operation for operation in operations(tmp_path / name))
