"""When requests are sent: means, variances, ramps, and what is refused."""

import math
import random
from itertools import pairwise
from statistics import fmean, pvariance

import pytest

from legato.bench.serving.arrivals import Arrivals, RampUp, parse_burstiness, parse_ramp_up, parse_rates
from legato.errors import ConfigError


def intervals(arrivals: Arrivals, count: int = 20_000) -> list[float]:
    times = arrivals.send_times(count, random.Random(0))
    assert times[0] == 0
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 4.0])
def test_intervals_have_the_mean_of_the_rate_and_the_variance_of_the_burstiness(burstiness: float) -> None:
    found = intervals(Arrivals(rate=8.0, burstiness=burstiness))
    assert fmean(found) == pytest.approx(1 / 8, rel=0.03)
    assert pvariance(found) == pytest.approx(1 / 8**2 / burstiness, rel=0.08)


def test_a_poisson_process_has_the_exponential_share_of_short_intervals() -> None:
    found = intervals(Arrivals(rate=2.0))
    assert sum(interval < 0.5 for interval in found) / len(found) == pytest.approx(1 - math.exp(-1), abs=0.01)


def test_limits_are_all_at_once_and_evenly_spaced() -> None:
    assert set(intervals(Arrivals(rate=math.inf), 50)) == {0.0}
    assert intervals(Arrivals(rate=4.0, burstiness=math.inf), 50) == pytest.approx([0.25] * 49)


@pytest.mark.parametrize(("kind", "middle"), [("linear", 4.5), ("exponential", math.sqrt(8))])
def test_a_ramp_goes_from_its_first_rate_to_its_last(kind: str, middle: float) -> None:
    ramp = RampUp(kind=kind, first_rate=1.0, last_rate=8.0)
    assert [ramp.rate(index, 101) for index in (0, 50, 100)] == pytest.approx([1.0, middle, 8.0])
    assert ramp.rate(0, 1) == 1.0
    found = intervals(Arrivals(rate=math.inf, burstiness=math.inf, ramp_up=ramp), 101)
    assert found[0] == pytest.approx(1.0)
    assert found[50] == pytest.approx(1 / middle)


def test_the_same_seed_gives_the_same_times() -> None:
    arrivals = Arrivals(rate=3.0, burstiness=0.7)
    assert arrivals.send_times(9, random.Random(5)) == arrivals.send_times(9, random.Random(5))
    assert arrivals.send_times(9, random.Random(5)) != arrivals.send_times(9, random.Random(6))


def test_what_is_typed_is_read() -> None:
    assert parse_rates("1,2.5,inf") == (1.0, 2.5, math.inf)
    assert parse_burstiness("inf") == math.inf
    assert parse_ramp_up("exponential:1:8") == RampUp(kind="exponential", first_rate=1.0, last_rate=8.0)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "", "x", "1,1", "1,,2"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_rates(text)


@pytest.mark.parametrize("text", ["linear", "linear:1", "cubic:1:2", "linear:0:2", "linear:1:inf", "linear:1:2:3"])
def test_what_is_no_ramp_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_ramp_up(text)
