"""Ask whether a pinned dependency is known to be vulnerable (pip-audit), as a part of ``make lint``.

A vulnerability is a failure. Where nobody can be asked, for want of a network or because an index keeps no advisories,
the audit says what it has not seen, and is no failure: a build must not depend on a service being reachable.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).parents[1] / "constraints.txt"
TIMEOUT_S = 10
"""For each request to the service; the first that is not answered ends the audit."""
NO_NETWORK = re.compile(r"ConnectionError|ProxyError|SSLError|Timeout|ServiceError|Could not connect")
"""What the last line of pip-audit's complaint then says."""


def main() -> int:
    """Audit the pins; return the exit status."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINS), "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", str(TIMEOUT_S)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        dependencies = json.loads(ended.stdout)["dependencies"]
    except (ValueError, KeyError):
        return unanswered(ended.stderr)
    lines, vulnerable = verdict(dependencies)
    print("\n".join(lines))
    return int(vulnerable)


def verdict(dependencies: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return what a report of pip-audit comes to, in lines, and whether a dependency is vulnerable."""
    known = [one for one in dependencies if "skip_reason" not in one]
    unknown = [one["name"] for one in dependencies if "skip_reason" in one]
    lines = [
        f"audit: {one['name']} {one['version']} has {found['id']}, mended in {', '.join(found['fix_versions']) or '-'}"
        for one in known
        for found in one["vulns"]
    ]
    vulnerable = bool(lines)
    if known and not vulnerable:
        lines.append(f"audit: no known vulnerability in {len(known)} dependencies")
    if unknown:
        shown = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
        lines.append(f"audit: NOT AUDITED: the index tells nothing of {len(unknown)} dependencies: {shown}")
    return lines, vulnerable


def unanswered(complaint: str) -> int:
    """Say why there is no report; return the exit status: 0 only where the network is the reason."""
    last = complaint.strip().rpartition("\n")[2]
    if NO_NETWORK.search(last) is None:
        print(f"audit: pip-audit failed:\n{complaint}", file=sys.stderr)
        return 2
    print(f"audit: NOT AUDITED: the vulnerability service cannot be reached: {last[:200]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
