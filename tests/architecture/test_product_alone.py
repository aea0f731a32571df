"""The repository is the product: nothing in it depends on, or names, the place where it was made."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ABSOLUTE_PATH = re.compile(r"(?<![\w./:<~-])/(?:work|home|root|Users|opt)/\w+")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in tracked_files()
        if (match := ABSOLUTE_PATH.search(path.read_text(errors="ignore")))
    }
    assert found == {}
