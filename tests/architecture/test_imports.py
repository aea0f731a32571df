"""The architecture is the import contracts of pyproject.toml; this runs them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def test_every_import_contract_is_kept() -> None:
    # in a process of its own: the linter sets logging up anew, and silences all other loggers
    done = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
