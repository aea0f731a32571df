"""Batch files: rows in OpenAI's form, and every line answered once however often a run is killed."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.errors import ConfigError, EngineDeadError
from legato.server.batch.lines import BatchRow, read_lines
from legato.server.batch.results_file import ResultsFile
from legato.server.batch.run import BatchJob, run_batch

SUPPORT = Path(__file__).parents[2] / "support"
SCRIPT = """
import sys
from pathlib import Path
from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.server.batch.run import BatchJob, run_batch
model, input, output = sys.argv[1:]
job = BatchJob(input=Path(input), output=Path(output), max_concurrency=3, options=ServerOptions())
engine = EngineOptions(model=model, served_model_name="tiny")
run_batch(job, engine, lambda done, lines: None, factory="scripted_core:build")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def line(custom_id, *, url="/v1/completions", method="POST", **body):
    body = {"model": "tiny", "prompt": [5], "max_tokens": 4, "return_token_ids": True} | body
    return json.dumps({"custom_id": custom_id, "method": method, "url": url, "body": body})


def written(tmp_path, *lines):
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def answered(path, output, model, **options):
    job = BatchJob(input=path, output=output, max_concurrency=4, options=ServerOptions())
    engine = EngineOptions(model=str(model), served_model_name="tiny", **options)
    counts = run_batch(job, engine, lambda done, lines: None, factory="scripted_core:build")
    return counts, [json.loads(text) for text in output.read_text().splitlines()]


def test_every_line_gets_a_row_and_what_is_wrong_with_one_stands_in_its_own(tmp_path, model):
    message = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    chat = json.dumps({"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions", "body": message})
    lines = (
        line("good"),
        chat,
        "{broken",
        "",
        line("good"),
        line("place", url="/v1/embeddings"),
        line("verb", method="GET"),
        line("stream", stream=True),
        line("model", model="another"),
        line("many", n=3, prompt=[[7], [8]]),
        line("field", temprature=1),
        json.dumps({"custom_id": "items", "method": "POST", "url": "/v1/responses", "body": {"input": "a"}}),
    )
    counts, rows = answered(written(tmp_path, *lines), tmp_path / "out.jsonl", model, max_queue=6)
    assert (counts.lines, counts.answered, counts.failed) == (11, 11, 7)
    assert sorted(row["id"] for row in rows) == sorted(f"batch_req_{n}" for n in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12))
    by_id = {row["id"].removeprefix("batch_req_"): row for row in rows}
    assert by_id["12"]["response"]["body"]["output"][0]["type"] == "message"
    good = by_id["1"]["response"]
    assert (good["status_code"], good["body"]["choices"][0]["token_ids"]) == (200, [6, 7, 8, 9])
    assert good["request_id"] == good["body"]["id"] and by_id["1"]["error"] is None
    assert by_id["2"]["response"]["body"]["object"] == "chat.completion"
    assert len(by_id["10"]["response"]["body"]["choices"]) == 6
    codes = {number: row["error"] and row["error"]["code"] for number, row in by_id.items()}
    assert codes["3"] == "invalid_json_line" and by_id["3"]["custom_id"] is None
    assert (codes["5"], codes["6"], codes["7"]) == ("duplicate_custom_id", "invalid_url", "invalid_method")
    assert codes["8"] == "invalid_body"
    assert by_id["9"]["response"]["status_code"] == 404
    assert by_id["11"]["response"]["body"]["error"]["param"] == "temprature"


def test_a_run_that_is_killed_again_and_again_finishes_without_losing_or_repeating_a_row(tmp_path, model):
    count = 60
    path = written(tmp_path, *(line(f"row {n}", prompt=[n + 1], max_tokens=4) for n in range(count)))
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", SCRIPT, str(model), str(path), str(output)]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "SCRIPTED_STEP_S": "0.02", "OMP_NUM_THREADS": "1"}
    kills = 0
    for goal in (5, 25):
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        deadline = time.monotonic() + 120
        while not (output.exists() and output.read_bytes().count(b"\n") >= goal):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kills += 1
        with output.open("ab") as file:
            file.write(b'{"id": "batch_req_1", "cus')  # what a kill in the middle of a write leaves
    assert kills == 2 and output.read_bytes().count(b"\n") < count
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == 0
    rows = [json.loads(text) for text in output.read_text().splitlines()]
    assert sorted(row["custom_id"] for row in rows) == sorted(f"row {n}" for n in range(count))
    for row in rows:
        first = int(row["custom_id"].removeprefix("row ")) + 1
        assert row["response"]["body"]["choices"][0]["token_ids"] == [first + step for step in range(1, 5)]


def test_an_engine_that_ends_ends_the_run_and_leaves_its_line_for_the_next_one(tmp_path, model):
    path = written(tmp_path, line("good"), line("crash", prompt=[298]))
    output = tmp_path / "out.jsonl"
    with pytest.raises(EngineDeadError):
        answered(path, output, model)
    assert '"crash"' not in output.read_text()


def test_a_finished_run_is_told_without_starting_an_engine(tmp_path):
    path, output = written(tmp_path, line("a")), tmp_path / "out.jsonl"
    with ResultsFile(output) as results:
        results.append(BatchRow(id="batch_req_1", custom_id="a"))
    counts, _ = answered(path, output, "there is no such model")
    assert (counts.lines, counts.resumed, counts.answered) == (1, 1, 0)


def test_results_of_another_file_and_files_of_another_form_are_refused(tmp_path):
    output = tmp_path / "out.jsonl"
    with ResultsFile(output) as results:
        results.append(BatchRow(id="batch_req_1", custom_id="b"))
        with pytest.raises(ConfigError, match="another run"):
            ResultsFile(output)
    with pytest.raises(ConfigError, match="another batch file"):
        answered(written(tmp_path, line("a")), output, "none")
    output.write_text("a letter\n")
    with pytest.raises(ConfigError, match="not one of results"):
        ResultsFile(output)
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read_lines(tmp_path / "missing"))


def test_a_row_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(tmp_path):
    output = tmp_path / "out.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ResultsFile(output) as results:
        results.append(BatchRow(id="batch_req_1", custom_id="a"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (output.stat().st_size + 10, limits[1]))
        try:
            with pytest.raises(ConfigError, match="row cannot be written"):
                results.append(BatchRow(id="batch_req_2", custom_id="b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        results.append(BatchRow(id="batch_req_3", custom_id="c"))
    with ResultsFile(output) as results:
        assert list(results.done) == ["batch_req_1", "batch_req_3"]


def test_a_run_that_fails_itself_writes_down_no_answers_that_its_own_end_makes(tmp_path, model, monkeypatch):
    monkeypatch.setenv("SCRIPTED_STEP_S", "0.05")
    lines = (line("short", max_tokens=1), *(line(f"long {n}", max_tokens=200) for n in range(3)))
    output = tmp_path / "out.jsonl"
    job = BatchJob(input=written(tmp_path, *lines), output=output, max_concurrency=4, options=ServerOptions())

    def broken(done, lines):
        raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError):
        run_batch(job, EngineOptions(model=str(model), served_model_name="tiny"), broken, factory="scripted_core:build")
    assert [json.loads(text)["custom_id"] for text in output.read_text().splitlines()] == ["short"]
