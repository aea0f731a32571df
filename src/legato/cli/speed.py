"""How fast an answer came. Owns the clock of one generation and the lines that report it."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from legato.observability.stats import EngineStats


@dataclass(slots=True)
class Stopwatch:
    """Times of one batch of requests, in seconds of a monotonic clock."""

    started: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    """None: not observed, because the outputs came in one piece."""
    last_token: float | None = None
    num_tokens: int = 0

    def see(self, num_tokens: int) -> None:
        """Note that ``num_tokens`` more tokens are there now, the first of them if none was seen before."""
        if num_tokens > 0 and self.first_token is None:
            self.first_token = time.perf_counter()
        self.finish(num_tokens)

    def finish(self, num_tokens: int) -> None:
        """Note that ``num_tokens`` more tokens have come by now."""
        self.num_tokens += num_tokens
        self.last_token = time.perf_counter()

    def line(self) -> str:
        """Return tokens, time to the first one where it is known, and tokens per second over all."""
        if self.num_tokens == 0 or self.last_token is None:
            return "no tokens"
        parts = [f"{self.num_tokens} tokens"]
        if self.first_token is not None:
            parts.append(f"first after {(self.first_token - self.started) * 1000:.0f} ms")
        parts.append(f"{self.num_tokens / (self.last_token - self.started):.1f} tokens/s")
        return " · ".join(parts)


def acceptance_line(stats: "EngineStats") -> str | None:
    """Return what a drafter brought; None where nothing was drafted."""
    length = stats.acceptance_length
    if length is None:
        return None
    rates = " ".join(f"{rate:.2f}" for rate in stats.acceptance_rates)
    parts = [f"{length:.2f} tokens per round of drafts", f"accepted by position {rates}"]
    if stats.spec_decode_speed_up is not None:
        now = stats.spec_decode_num_speculative_tokens
        parts.append(f"{stats.spec_decode_speed_up:.2f} times plain decoding by measured costs, {now} drafts now")
    return " · ".join(parts)
