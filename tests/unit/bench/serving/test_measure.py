"""Sweeps, repetitions, warm-up and a server of one's own, over scripted servers."""

import math
import os
import signal
import subprocess
import sys

import pytest
from scripted_http import plain, scripted_server, stream

from legato.bench.serving.arrivals import Arrivals, RampUp
from legato.bench.serving.client import Target
from legato.bench.serving.datasets import Dataset, DatasetSpec
from legato.bench.serving.measure import Plan, ServingRow, first_model, measure_server, sweep
from legato.bench.serving.own_server import running_server
from legato.bench.serving.random_text import BareIds
from legato.cli.bench_serve import as_typed
from legato.config.options import EngineOptions
from legato.errors import ConfigError, EngineDeadError, RequestError

AT_ONCE = Arrivals(rate=math.inf)


def measure(url: str, **plan) -> list[ServingRow]:
    loads = sweep([AT_ONCE], [1, 2], [4], "random")
    dataset = Dataset(DatasetSpec(input_len=3, output_len=2), lambda: BareIds(1000))
    target = Target(base_url=url, model="m")
    return list(measure_server(Plan(label="it", target=target, dataset="random", loads=loads, **plan), dataset))


def test_each_load_is_measured_as_often_as_wanted_with_prompts_of_its_own() -> None:
    with scripted_server(stream("a", "b")) as server:
        rows = measure(server.url, repeat=2, warmup=3)
        prompts = [tuple(body["prompt"]) for body in server.bodies]
        measure(server.url, repeat=2, warmup=3)
        assert sorted(prompts) == sorted(tuple(body["prompt"]) for body in server.bodies[len(prompts) :])
    assert [(row.case, row.repetition) for row in rows] == [
        ("random rate=inf c=1", 0),
        ("random rate=inf c=1", 1),
        ("random rate=inf c=2", 0),
        ("random rate=inf c=2", 1),
    ]
    assert len(prompts) == len(set(prompts)) == 4 * (4 + 3), "no run finds prompts of another in a cache"
    assert {(row.completed, row.num_requests, row.output_tokens) for row in rows} == {(4, 4, 8)}
    assert [row.peak_concurrency for row in rows] == [1, 1, 2, 2]
    assert rows[0].request_rate is None and rows[0].engine == "it"


def test_a_server_that_refuses_everything_gives_rows_with_reasons() -> None:
    with scripted_server(plain("503 Service Unavailable", "full")) as server:
        rows = measure(server.url)
    assert [row.failures for row in rows] == [{"HTTP 503: full": 4}] * 2
    assert {row.completed for row in rows} == {0}


def test_a_sweep_is_every_rate_with_every_limit() -> None:
    ramp = Arrivals(rate=math.inf, ramp_up=RampUp(kind="linear", first_rate=1, last_rate=4))
    loads = sweep([Arrivals(rate=1.5), ramp], [None, 8], [10, 20, 30, 40], "x")
    assert [(load.case, load.num_prompts) for load in loads] == [
        ("x rate=1.5", 10),
        ("x rate=1.5 c=8", 20),
        ("x rate=linear:1:4", 30),
        ("x rate=linear:1:4 c=8", 40),
    ]
    with pytest.raises(ConfigError):
        sweep([AT_ONCE], [1, 2, 3], [1, 2], "x")


def test_the_first_model_of_a_server_is_asked() -> None:
    with scripted_server() as server:
        assert first_model(f"{server.url}/v1/", None) == "m"
        url = server.url
    with pytest.raises(ConfigError):
        first_model(url, None)
    with pytest.raises(ConfigError):
        first_model("localhost:8000", None)
    for text in ("no JSON", '{"data": []}', "[]", '{"data": 3}'):
        with scripted_server(models=text) as server, pytest.raises(RequestError):
            first_model(server.url, None)


def test_a_server_of_ones_own_is_told_of_and_stopped() -> None:
    script = "import sys,time; e=sys.stderr; print('loading\\nserving m at http://h:1', file=e, flush=True)"
    seen: list[str] = []
    with running_server(
        [sys.executable, "-c", f"{script}; print('x' * 200000, file=sys.stderr); time.sleep(60)"], seen.append
    ) as url:
        assert url == "http://h:1"
    assert seen == ["loading", "serving m at http://h:1"]


def test_a_measurement_that_is_terminated_leaves_no_server_behind() -> None:
    server = "import os,sys,time; print('serving m at http://h:%d' % os.getpid(), file=sys.stderr); time.sleep(60)"
    script = (
        "import sys, time; from legato.bench.serving.own_server import running_server\n"
        "with running_server([sys.executable, '-uc', sys.argv[1]]) as url: print(url, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as measuring:
        assert measuring.stdout is not None
        pid = int(measuring.stdout.readline().rpartition(":")[2])
        measuring.terminate()
        assert measuring.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_ends_instead_is_an_error_with_its_last_words() -> None:
    script = "import sys; print('no such model', file=sys.stderr); sys.exit(3)"
    with pytest.raises(EngineDeadError, match="no such model"), running_server([sys.executable, "-c", script]):
        raise AssertionError("it does not serve")


def test_options_are_typed_as_they_were() -> None:
    options = EngineOptions(
        model="m", prefix_caching=False, overlap=True, graph_sizes=(1, 2), seed=5, speculative_config='{"a": 1}'
    )
    assert as_typed(options) == [
        *("--model", "m", "--no-prefix-caching", "--overlap", "--graph-sizes", "1,2"),
        *("--speculative-config", '{"a": 1}', "--seed", "5"),
    ]
    assert as_typed(EngineOptions()) == []
