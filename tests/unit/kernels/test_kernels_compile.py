"""The interpreter accepts what the compiler does not: kernels are compiled for a GPU that need not be there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def lines_of(script: str, cache: Path) -> list[str]:
    """Run a script of this folder with a cache of its own; return what it prints."""
    path = Path(__file__).with_name(script)
    environment = os.environ | {"TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_every_kernel_of_a_decode_step_compiles_for_hopper_and_waits_where_it_starts_early(tmp_path: Path) -> None:
    lines = lines_of("compile_for_hopper.py", tmp_path)
    late, early = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert len(late) == len(early) > 10
    assert all(line.endswith("waits 0") for line in late)
    assert all(line.endswith("waits 1") for line in early)


def test_kernels_that_are_asked_for_together_are_compiled_once_and_say_at_their_launch_what_is_wrong(
    tmp_path: Path,
) -> None:
    assert lines_of("compile_together_for_hopper.py", tmp_path) == [
        "told (4, 4), compiled 3 {'CompiledKernel'}, launchers 1",
        "compiled 3 when they are launched",
        "launched, the broken one says: there is nothing to compile",
    ]
