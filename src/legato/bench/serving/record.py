"""What is known of one request afterwards. Owns its times and their names; all are seconds of ``time.perf_counter``."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, sent and ended, for better or worse."""

    due: float
    """When it was to be sent: the time drawn for it, or when one of those at once ended, whichever was later."""
    sent: float
    """When its sending began, connecting included."""
    ended: float
    token_times: tuple[float, ...] = ()
    """When each chunk with a token arrived; a chunk may bring several tokens."""
    input_tokens: int = 0
    output_tokens: int = 0
    failure: str | None = None
    """Why it failed; None: it did not."""
    counted_by_server: bool = False
    """Whether the numbers of tokens are the server's; else a chunk counts as a token, and the input is not known."""

    @property
    def ttft_s(self) -> float | None:
        """To the first token; None where no token came."""
        return self.token_times[0] - self.sent if self.token_times else None

    @property
    def e2e_s(self) -> float:
        """To the last token, or to the end where there is none."""
        return (self.token_times[-1] if self.token_times else self.ended) - self.sent

    @property
    def tpot_s(self) -> float | None:
        """Per token after the first; None where there are not two."""
        if not self.token_times or self.output_tokens < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.output_tokens - 1)

    @property
    def gaps_s(self) -> list[float]:
        """Between chunks with tokens: what a reader waits."""
        return [later - earlier for earlier, later in pairwise(self.token_times)]

    @property
    def late_s(self) -> float:
        """How much later than due it was sent: the client's own doing."""
        return self.sent - self.due
