"""The audit of dependencies fails for a vulnerability, and for nothing that it could not ask."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from audit import unanswered, verdict  # noqa: E402

CLEAN = {"name": "torch", "version": "2.13.0", "vulns": []}
WEAK = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
UNKNOWN = {"name": "legato", "skip_reason": "Dependency not found"}


def test_a_vulnerability_is_a_failure_and_named() -> None:
    lines, vulnerable = verdict([CLEAN, WEAK, UNKNOWN])
    assert vulnerable
    assert lines[0] == "audit: jinja2 2.4.1 has PYSEC-2019-217, mended in 2.10.1"


def test_what_nobody_knows_of_is_told_but_no_failure() -> None:
    assert verdict([CLEAN, UNKNOWN]) == (
        [
            "audit: no known vulnerability in 1 dependencies",
            "audit: NOT AUDITED: the index tells nothing of 1 dependencies: legato",
        ],
        False,
    )
    assert verdict([UNKNOWN])[0] == ["audit: NOT AUDITED: the index tells nothing of 1 dependencies: legato"]


def test_without_a_network_the_audit_says_that_it_did_not_happen() -> None:
    pytest.importorskip("pip_audit")
    environment = {"HTTPS_PROXY": "http://127.0.0.1:9", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, ROOT / "scripts" / "audit.py"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "NOT AUDITED: the vulnerability service cannot be reached" in ended.stdout


def test_an_audit_that_breaks_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert unanswered("Traceback …\nNo module named pip_audit") == 2
    assert "No module named pip_audit" in capsys.readouterr().err
