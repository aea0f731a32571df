"""Routes for whoever runs the server: health, version, models, metrics, and which graphs ran."""

import asyncio
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from legato import __version__
from legato.errors import EngineDeadError
from legato.observability.stats import EngineStats
from legato.server.errors import SERVER, ApiError
from legato.server.state import ServerState, state_of

router = APIRouter()
State = Annotated[ServerState, Depends(state_of)]

STATS_S = 5.0
"""A scrape does not wait longer for an engine that is in a long step."""


@router.get("/health")
async def health(state: State) -> Response:
    """Return 200 while the engine lives, else 503 with what it died of."""
    error = state.llm.error
    if error is not None:
        raise ApiError(503, str(error), kind=SERVER, code="engine_dead")
    return _json({"status": "ok"})


@router.get("/version")
async def version() -> Response:
    """Return the version of Legato."""
    return _json({"version": __version__})


@router.get("/v1/models")
async def models(state: State) -> Response:
    """Return the one model that is served."""
    return _json({"object": "list", "data": [_model(state)]})


@router.get("/v1/models/{name:path}")
async def model(name: str, state: State) -> Response:
    """Return the model, if it is the one that is served."""
    state.check_model(name)
    return _json(_model(state))


@router.get("/metrics")
async def metrics(state: State) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(state.metrics.render(await _stats(state)), media_type=CONTENT_TYPE_LATEST)


@router.get("/debug/graphs")
async def graphs(state: State) -> Response:
    """Return policy, decisions and catalog, and how often each graph was replayed."""
    report, stats = await asyncio.gather(state.llm.graph_report(), state.llm.stats())
    return _json(report | {"replays": stats.graph_replays})


@router.get("/debug/steps")
async def steps(state: State, count: Annotated[int, Query(alias="n", ge=1, le=1024)] = 100) -> Response:
    """Return the records of the last ``n`` steps, oldest first."""
    return _json({"steps": await state.llm.step_records(count)})


async def _stats(state: ServerState) -> EngineStats | None:
    try:
        return await asyncio.wait_for(state.llm.stats(), STATS_S)
    except (EngineDeadError, TimeoutError):
        return None  # the last known figures stand; /health tells the rest


def _model(state: ServerState) -> dict[str, object]:
    return {
        "id": state.model_name,
        "object": "model",
        "created": state.started,
        "owned_by": "legato",
        "max_model_len": state.llm.config.scheduler.max_model_len,
    }


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
