"""When requests are sent. Owns the arrival processes; knows neither prompts nor servers."""

import math
import random
from dataclasses import dataclass

from legato.errors import ConfigError

KINDS = ("linear", "exponential")


@dataclass(frozen=True, slots=True, kw_only=True)
class RampUp:
    """A rate that grows from the first request to the last one."""

    kind: str
    """``linear``: by equal differences, request by request; ``exponential``: by equal factors."""
    first_rate: float
    last_rate: float

    def rate(self, index: int, count: int) -> float:
        """Return the requests per second at request ``index`` of ``count``."""
        done = index / max(1, count - 1)
        if self.kind == "linear":
            return self.first_rate + (self.last_rate - self.first_rate) * done
        return self.first_rate * math.pow(self.last_rate / self.first_rate, done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """An arrival process: intervals drawn from a gamma distribution whose mean is the inverse of the rate."""

    rate: float
    """Requests per second; ``inf``: all at once. Without meaning where there is a ramp."""
    burstiness: float = 1.0
    """Shape of the distribution: 1 is a Poisson process, less comes in bursts, ``inf`` is evenly spaced.

    The squared coefficient of variation of an interval is its inverse.
    """
    ramp_up: RampUp | None = None

    def send_times(self, count: int, generator: random.Random) -> list[float]:
        """Return ``count`` seconds from the start, in order; the first is 0."""
        times: list[float] = []
        now = 0.0
        for index in range(count):
            times.append(now)
            rate = self.rate if self.ramp_up is None else self.ramp_up.rate(index, count)
            now += _interval(rate, self.burstiness, generator)
        return times


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse ``inf`` or ``1,2,4.5``. Raises ConfigError for anything but positive numbers."""
    rates = tuple(_positive("--request-rate", part) for part in text.split(","))
    if len(set(rates)) != len(rates):
        raise ConfigError("a request rate is given twice", {"requested": f"--request-rate {text}"})
    return rates


def parse_burstiness(text: str) -> float:
    """Parse a positive number or ``inf``. Raises ConfigError for anything else."""
    return _positive("--burstiness", text)


def parse_ramp_up(text: str) -> RampUp:
    """Parse ``linear:1:8`` or ``exponential:1:8``. Raises ConfigError for anything else."""
    kind, *rates = text.split(":")
    if kind not in KINDS or len(rates) != 2:
        details = {"requested": f"--ramp-up {text}", "options": " | ".join(f"{each}:FROM:TO" for each in KINDS)}
        raise ConfigError("a ramp is a kind and two rates", details)
    first, last = (_positive("--ramp-up", rate) for rate in rates)
    if math.isinf(first) or math.isinf(last):
        raise ConfigError("a ramp has finite rates", {"requested": f"--ramp-up {text}"})
    return RampUp(kind=kind, first_rate=first, last_rate=last)


def _interval(rate: float, burstiness: float, generator: random.Random) -> float:
    if math.isinf(rate):
        return 0.0
    if math.isinf(burstiness):
        return 1 / rate
    return generator.gammavariate(burstiness, 1 / (rate * burstiness))


def _positive(option: str, text: str) -> float:
    details = {"requested": f"{option} {text}", "limit": "a number above 0, or inf"}
    try:
        value = float(text)
    except ValueError:
        raise ConfigError("a number was expected", details) from None
    if not value > 0:  # nan too
        raise ConfigError("a number is out of range", details)
    return value


def rate_text(rate: float | None) -> str:
    """Return how a rate is written; None is unlimited."""
    return "inf" if rate is None or math.isinf(rate) else f"{rate:g}"
