"""Routes for whoever runs the server: health, version, models, metrics, and which graphs ran."""

import asyncio
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from legato import __version__
from legato.errors import EngineDeadError
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats
from legato.server.description import answers
from legato.server.errors import SERVER, ApiError
from legato.server.state import ServerState, state_of

router = APIRouter()
State = Annotated[ServerState, Depends(state_of)]

STATS_S = 5.0
"""A scrape does not wait longer for an engine that is in a long step."""


class Health(msgspec.Struct, frozen=True):
    """The engine lives."""

    status: str = "ok"


class Version(msgspec.Struct, frozen=True):
    """Which Legato answers."""

    version: str


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is served."""

    id: str
    object: str = "model"
    created: int
    """Seconds since the epoch at which the server started."""
    owned_by: str = "legato"
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All models that are served."""

    object: str = "list"
    data: list[Model]


class Steps(msgspec.Struct, frozen=True):
    """The last steps, oldest first."""

    steps: tuple[StepRecord, ...]


@router.get("/health", responses=answers(Health, 503))
async def health(state: State) -> Response:
    """Return 200 while the engine lives, else 503 with what it died of."""
    error = state.llm.error
    if error is not None:
        raise ApiError(503, str(error), kind=SERVER, code="engine_dead")
    return _json(Health())


@router.get("/version", responses=answers(Version))
async def version() -> Response:
    """Return the version of Legato."""
    return _json(Version(version=__version__))


@router.get("/v1/models", responses=answers(ModelList))
async def models(state: State) -> Response:
    """Return the one model that is served."""
    return _json(ModelList(data=[_model(state)]))


@router.get("/v1/models/{name:path}", responses=answers(Model, 404))
async def model(name: str, state: State) -> Response:
    """Return the model, if it is the one that is served."""
    state.check_model(name)
    return _json(_model(state))


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(state: State) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(state.metrics.render(await _stats(state)), media_type=CONTENT_TYPE_LATEST)


@router.get("/debug/graphs", responses=answers(None, 503))
async def graphs(state: State) -> Response:
    """Return policy, decisions and catalog, and how often each graph was replayed."""
    report, stats = await asyncio.gather(state.llm.graph_report(), state.llm.stats())
    return _json(report | {"replays": stats.graph_replays})


@router.get("/debug/steps", responses=answers(Steps, 400, 503))
async def steps(state: State, count: Annotated[int, Query(alias="n", ge=1, le=1024)] = 100) -> Response:
    """Return the records of the last ``n`` steps, oldest first."""
    return _json(Steps(steps=await state.llm.step_records(count)))


async def _stats(state: ServerState) -> EngineStats | None:
    try:
        return await asyncio.wait_for(state.llm.stats(), STATS_S)
    except (EngineDeadError, TimeoutError):
        return None  # the last known figures stand; /health tells the rest


def _model(state: ServerState) -> Model:
    length = state.llm.config.scheduler.max_model_len
    return Model(id=state.model_name, created=state.started, max_model_len=length)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
