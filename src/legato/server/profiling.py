"""``POST /start_profile`` and ``POST /stop_profile``: what the engine runs, as a trace.

The routes exist only where ``--profile-dir`` is given.
"""

import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from legato.server.description import answers
from legato.server.state import ServerState, state_of

router = APIRouter()
State = Annotated[ServerState, Depends(state_of)]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a recording."""

    status: Literal["recording", "written"]
    file: str | UnsetType = UNSET
    """Where it is written."""


@router.post("/start_profile", responses=answers(Profile, 400, 503))
async def start_profile(state: State) -> Response:
    """Begin to record the engine's operations and kernels."""
    await state.llm.start_profile()
    return _told(Profile(status="recording"))


@router.post("/stop_profile", responses=answers(Profile, 400, 503))
async def stop_profile(state: State) -> Response:
    """End the recording; the answer names the file, which is whole by then."""
    assert state.options.profile_dir is not None, "the route exists only where there is a folder"
    folder = Path(state.options.profile_dir).absolute()
    path = folder / f"legato-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}.json"
    await state.llm.stop_profile(path)
    return _told(Profile(status="written", file=str(path)))


def _told(value: Profile) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
