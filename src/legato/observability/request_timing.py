"""When the tokens of one output came. Owns the latencies that the field names; plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """One output's life, in monotonic seconds, as its frontend saw it."""

    request_id: str
    index: int
    """Which of the request's ``n`` outputs."""
    num_prompt_tokens: int
    num_output_tokens: int
    arrival: float
    first_token: float | None
    """None: it ended without a token."""
    finished: float
    admitted: float | None = None
    """When it left the queue; None: it is not known, or it never did."""
    finish_reason: str | None = None
    inter_token_s: tuple[float, ...]
    """Between two tokens; tokens that came together share their wait evenly."""

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival to the first step."""
        return None if self.admitted is None else self.admitted - self.arrival

    @property
    def e2e_s(self) -> float:
        """Seconds from arrival to the end."""
        return self.finished - self.arrival
