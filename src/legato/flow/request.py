"""A request as the engine core sees it: token ids in, parameters, order. Owns no progress; the scheduler does."""

from dataclasses import dataclass

from legato.errors import RequestError
from legato.flow.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and one output. A request with ``n > 1`` arrives as ``n`` of these, of one ``group``."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    """Resolved: never None here."""
    stop_token_ids: frozenset[int]
    """Every id that ends the output, the model's own included unless ``ignore_eos``."""
    max_tokens: int
    """Resolved against the model's length."""
    arrival: float
    """Seconds, monotonic."""
    priority: int = 0
    """Lower runs earlier, under the priority policy."""
    group: str | None = None
    """Requests of one group have the same prompt and share its blocks, whether or not prefix caching is on."""


def id_in_use(*request_ids: str) -> RequestError:
    """Return the error for requests whose ids others have that are under way."""
    details = {"requested": ", ".join(request_ids), "limit": "an id that no request under way has"}
    return RequestError("the request id is in use", details, param="request_id")
