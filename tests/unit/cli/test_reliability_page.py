"""The page on reliability tells what the result files say, and what they say is what must be."""

from pathlib import Path

from legato.cli.reliability_page import FOLDER, reliability_page
from legato.results.place import this_environment
from legato.results.rows_file import read_rows_file, write_rows

ROOT = Path(__file__).parents[3]
SAMPLE = {
    "seconds": 0.0,
    "running": 0.0,
    "kv_used_share": 0.0,
    "generation_tokens": 10.0,
    "server_mib": 100.0,
    "engine_mib": 200.0,
    "server_files": 9,
}
SOAK = {
    "case": "soak",
    "model": "a-model",
    "minutes": 30.0,
    "questions": 5,
    "requests": 1234,
    "outcomes": [
        {"kind": "chat", "outcome": "right answer", "count": 1000},
        {"kind": "greedy", "outcome": "right answer", "count": 233},
        {"kind": "greedy", "outcome": "wrong answer", "count": 1},
    ],
    "violations": ["greedy: one was wrong"],
    "started": SAMPLE,
    "ended": SAMPLE | {"generation_tokens": 5010.0, "kv_used_share": 0.01},
    "samples": [SAMPLE | {"seconds": 60.0 * each, "server_mib": 100.0 + each} for each in range(31)],
}
FAULT = {
    "case": "fault",
    "name": "a flood",
    "done": "Water comes.",
    "saw": ["it was wet", "it got 400"],
    "recovered": ["it was dry"],
    "failed": [],
    "figures": {"litres_in_all": 5.0},
}


def page_of(folder: Path, files: dict[str, list[dict]]) -> str:
    for name, rows in files.items():
        environment = this_environment("cpu")
        write_rows(folder / FOLDER / name, rows, environment=environment, command="python x", commit="0123456789")
    return reliability_page(folder)


def test_a_soak_is_told_with_its_outcomes_memory_and_what_was_violated(tmp_path):
    text = page_of(tmp_path, {"2026-01-02-cpu-soak-a.json": [SOAK]})
    assert "## Soak: a-model, 30 minutes" in text
    assert "1,234 requests, 5 different questions, 5,000 tokens. 0% of the KV blocks" in text
    assert "Violated: greedy: one was wrong" in text
    assert "| right answers | 1,233 |" in text
    assert "| server, MiB | 100 | 105 | 110 | 115 | 120 | 125 | 130 |" in text
    assert "| greedy | 233 | 0 | 0 | 0 | 1 | 0 | 0 |" in text


def test_a_fault_is_told_with_what_did_not_hold(tmp_path):
    failed = FAULT | {"name": "a fire", "failed": ["it was put out"]}
    text = page_of(tmp_path, {"2026-01-02-cpu-faults.json": [FAULT, failed]})
    assert "### a flood\n\nWater comes.\n\n- Clients: it was wet; it got 400.\n- Afterwards: it was dry." in text
    assert "- Figures: litres in all 5.\n- All of it held." in text
    assert "**Did not hold: it was put out.**" in text


def test_the_latest_file_of_a_kind_counts(tmp_path):
    files = {"2026-01-02-cpu-soak-a.json": [SOAK], "2026-01-03-cpu-soak-a.json": [SOAK | {"violations": []}]}
    text = page_of(tmp_path, files | {"2026-01-02-cpu-soak-b.json": [SOAK | {"model": "another"}]})
    assert text.count("## Soak") == 2
    assert text.count("Nothing was violated.") == 1


def test_the_committed_results_are_of_real_runs_in_which_everything_held():
    rows = [row for path in sorted((ROOT / FOLDER).glob("*.json")) for row in read_rows_file(path).rows]
    soaks = [row for row in rows if row["case"] == "soak"]
    assert all(row["violations"] == [] and row["wrong_answers"] == row["stuck"] == 0 for row in soaks)
    assert max(row["minutes"] for row in soaks) >= 30
    faults = {row["name"]: row["failed"] for row in rows if row["case"] == "fault"}
    assert len(faults) >= 11
    assert not any(faults.values())
