"""Planted faults: each harms a server of its own, sees what its clients see, and looks whether it recovers.

    python benchmarks/faults.py [--only NAME …] [--quick] [--model MODEL] [--save FILE] [-- SERVE OPTIONS]

Prints a line for each fault and exits with code 1 if anything that must hold did not.
"""

import argparse
import asyncio
import inspect
import sys
import time
from pathlib import Path
from typing import Any

import fault_clients
import fault_engine
import fault_requests
from fault_setting import Fault, Setting

from legato.results.place import this_commit, this_environment
from legato.results.rows_file import model_name, portable_command, write_rows

FAULTS: dict[str, Fault] = {
    "engine killed": fault_engine.killed_mid_stream,
    "out of KV blocks": fault_engine.out_of_blocks,
    "out of memory at capture": fault_engine.out_of_memory_at_capture,
    "SIGTERM under load": fault_engine.told_to_end_under_load,
    "slow readers": fault_clients.slow_readers,
    "half-open connections": fault_clients.half_open_connections,
    "bodies in drops": fault_clients.bodies_in_drops,
    "10,000 connections": fault_clients.many_connections,
    "10,000 connections, all allowed": fault_clients.many_allowed_connections,
    "50 MB bodies": fault_requests.large_bodies,
    "header floods": fault_requests.header_floods,
    "invalid UTF-8": fault_requests.invalid_text,
}


def plant(name: str, setting: Setting) -> dict[str, Any]:
    """Do one harm and return its row."""
    fault = FAULTS[name]
    began = time.monotonic()
    found = asyncio.run(fault(setting))
    done = " ".join((inspect.getdoc(fault) or "").split())
    row = {
        "case": "fault",
        "engine": "legato",
        "model": model_name(setting.model),
        "name": name,
        "done": done,
        "saw": found.saw,
        "recovered": found.recovered,
        "failed": found.failed,
        "figures": found.figures,
        "seconds": round(time.monotonic() - began, 1),
    }
    told = "; ".join(f"FAILED: {claim}" for claim in found.failed) or "held"
    print(f"{name:<32} {row['seconds']:>6.1f} s  {told}  {found.figures}", flush=True)
    return row


def main() -> int:
    """Plant faults; return the exit code."""
    parser = argparse.ArgumentParser(description="Planted faults, and what became of them.")
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="one fault; may be given several times")
    parser.add_argument("--quick", action="store_true", help="fewer connections and less patience")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--save", type=Path, help="where to write the result")
    parser.add_argument("serve", nargs="*", help="options of legato serve, behind --")
    options = parser.parse_args()
    setting = Setting(model=options.model, quick=options.quick, options=tuple(options.serve))
    rows = [plant(name, setting) for name in options.only or FAULTS]
    if options.save is not None:
        command = portable_command(sys.argv[1:], program=("python", "benchmarks/faults.py"))
        write_rows(options.save, rows, environment=this_environment("cpu"), command=command, commit=this_commit())
    return 1 if any(row["failed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
