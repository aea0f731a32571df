"""A file of rows: what is written is read, and commands add to it on one machine only."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from legato.errors import ConfigError
from legato.results.place import this_commit, this_environment
from legato.results.rows_file import model_name, portable_command, read_rows_file, write_rows

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    case: str
    tpot_ms: float | None = None


def test_rows_read_back_as_they_were_written(tmp_path: Path) -> None:
    path, here = tmp_path / "new" / "result.json", this_environment("cpu")
    write_rows(path, [Row(case="a", tpot_ms=1.5), {"case": "b"}], environment=here, command="legato x", commit="c")
    file = read_rows_file(path)
    assert file.environment == here
    assert file.rows == ({"case": "a", "tpot_ms": 1.5}, {"case": "b"})
    assert list(json.loads(path.read_text())) == ["environment", "command", "commit", "rows"]


def test_a_second_command_adds_its_rows_and_versions(tmp_path: Path) -> None:
    path, here = tmp_path / "result.json", this_environment("cpu")
    there = replace(here, versions={"peer": "2"})
    write_rows(path, [Row(case="a")], environment=here, command="legato x", commit="c", append=True)
    write_rows(path, [Row(case="b")], environment=there, command="legato y", commit="c", append=True)
    file = read_rows_file(path)
    assert [row["case"] for row in file.rows] == ["a", "b"]
    assert file.command == "legato x && legato y"
    assert file.environment.versions == here.versions | {"peer": "2"}


def test_without_append_the_old_rows_are_gone(tmp_path: Path) -> None:
    path, here = tmp_path / "result.json", this_environment("cpu")
    for case in ("a", "b"):
        write_rows(path, [Row(case=case)], environment=here, command="legato", commit="c")
    assert [row["case"] for row in read_rows_file(path).rows] == ["b"]


@pytest.mark.parametrize("other", [{"commit": "d"}, {"device": "another GPU"}])
def test_rows_of_another_machine_or_commit_are_refused_and_the_file_stays(
    tmp_path: Path, other: dict[str, str]
) -> None:
    path, here = tmp_path / "result.json", this_environment("cpu")
    write_rows(path, [Row(case="a")], environment=here, command="legato", commit="c")
    before = path.read_bytes()
    elsewhere = replace(here, device=other.get("device", here.device))
    with pytest.raises(ConfigError, match="another machine"):
        write_rows(
            path,
            [Row(case="b")],
            environment=elsewhere,
            command="legato",
            commit=other.get("commit", "c"),
            append=True,
        )
    assert path.read_bytes() == before


def test_a_file_of_another_form_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"environment": {"processor": 3}}')
    with pytest.raises(msgspec.ValidationError, match="environment"):
        read_rows_file(path)


def test_the_commit_is_told_where_there_is_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_COMMIT", "abc123")
    assert this_commit() == "abc123"


def test_a_command_keeps_no_path_of_the_machine_it_ran_on(tmp_path: Path) -> None:
    model = tmp_path / "llama"
    model.mkdir()
    arguments = ["bench", "latency", "--model", str(model), f"--output={tmp_path}/r.json", "--mode", "full"]
    assert portable_command(arguments) == "legato bench latency --model llama --output=r.json --mode full"
    assert portable_command(["--model", "someone/a-model"]) == "legato --model someone/a-model"


def test_a_row_names_a_folder_by_its_own_name_and_a_hub_model_as_typed(tmp_path: Path) -> None:
    assert model_name(f"{tmp_path}/") == tmp_path.name
    assert model_name("someone/a-model") == "someone/a-model"
