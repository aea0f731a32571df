"""Profiles of a server under load, through its own routes. Owns the order: begin, some requests, write."""

import itertools

import httpx

from legato.bench.serving.connection import server_root
from legato.bench.serving.datasets import Dataset
from legato.bench.serving.load import run_load
from legato.bench.serving.measure import Load, Plan
from legato.errors import RequestError

MOST_REQUESTS = 16
"""Of a load without a limit of requests at once: a profile grows with each step."""
WRITING_S = 300.0


def record_profile(plan: Plan, load: Load, dataset: Dataset) -> str:
    """Have the server record as many requests as run at once; return the file that it names. Raises RequestError."""
    number = min(load.num_prompts, load.max_concurrency or MOST_REQUESTS)
    prompts = list(itertools.islice(dataset.prompts(f"{plan.seed}-profile-{load.case}"), number))
    _tell(plan, "start_profile")
    run_load(plan.target, prompts, [0.0] * len(prompts), max_concurrency=load.max_concurrency)
    file: str = _tell(plan, "stop_profile")["file"]
    return file


def _tell(plan: Plan, route: str) -> dict[str, str]:
    root = str(server_root(plan.target.base_url)).rstrip("/")
    response = httpx.post(f"{root}/{route}", timeout=WRITING_S)
    if response.status_code != 200:
        found = f"{response.status_code} {response.text[:200]}"
        raise RequestError("the server makes no profile", {"requested": f"POST /{route}", "found": found})
    told: dict[str, str] = response.json()
    return told
