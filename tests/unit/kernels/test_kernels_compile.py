"""The interpreter accepts what the compiler does not: decode kernels are compiled for a GPU that need not be there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_every_kernel_of_a_decode_step_compiles_for_hopper_and_waits_where_it_starts_early(tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_for_hopper.py")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    late, early = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert len(late) == len(early) > 10
    assert all(line.endswith("waits 0") for line in late)
    assert all(line.endswith("waits 1") for line in early)
