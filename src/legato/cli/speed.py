"""How fast an answer came. Owns the clock of one generation and the line that reports it."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stopwatch:
    """Times of one batch of requests, in seconds of the monotonic clock."""

    started: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    last_token: float | None = None
    num_tokens: int = 0

    def count(self, num_tokens: int) -> None:
        """Note that ``num_tokens`` more tokens are there now."""
        if num_tokens == 0:
            return
        self.last_token = time.perf_counter()
        if self.first_token is None:
            self.first_token = self.last_token
        self.num_tokens += num_tokens

    def line(self) -> str:
        """Return tokens, time to the first one, and tokens per second over all."""
        if self.first_token is None or self.last_token is None:
            return "no tokens"
        total = self.last_token - self.started
        return (
            f"{self.num_tokens} tokens · first after {(self.first_token - self.started) * 1000:.0f} ms · "
            f"{self.num_tokens / total:.1f} tokens/s"
        )
