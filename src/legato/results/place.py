"""Where a measurement was made: machine, libraries and commit. Knows nothing of what is measured."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import legato
from legato.config import environment

_LIBRARIES = ("torch", "transformers", "triton", "flashinfer-python", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a reader needs to judge, or to repeat, a measurement."""

    processor: str
    num_cpus: int
    torch_threads: int
    device: str
    python: str
    versions: dict[str, str]


def this_environment(device: str) -> Environment:
    """Return this machine's description; ``device`` is the one measured."""
    import torch

    told = {name: _version(name) for name in _LIBRARIES}
    return Environment(
        processor=_processor(),
        num_cpus=os.cpu_count() or 1,
        torch_threads=torch.get_num_threads(),
        device=device,
        python=platform.python_version(),
        versions={"legato": legato.__version__} | {name: found for name, found in told.items() if found},
    )


def this_commit() -> str:
    """Return LEGATO_COMMIT, or the checkout's commit with ``+`` for uncommitted changes; ``unknown`` outside of one."""
    if told := environment.commit():
        return told
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=here, capture_output=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changes.returncode else "")


def _version(name: str) -> str | None:
    """Return a library's version; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's name, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
