"""Prometheus metrics: names, buckets and help. Owns one registry; knows neither requests nor HTTP.

What the engine counts is taken over from its stats at each scrape, so that no figure is counted twice; latencies are
observed when an output ends.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from legato.observability.latency_histogram import LatencyHistogram
from legato.observability.request_timing import RequestTiming
from legato.observability.stats import EngineStats

PREFIX = "legato:"
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self.registry.register(self._engine)
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", FIRST_TOKEN_SECONDS
        )
        self.inter_token_latency = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of one output.", TOKEN_SECONDS
        )
        self.e2e_latency = self._histogram(
            "e2e_request_latency_seconds", "From a request's arrival to its last token.", REQUEST_SECONDS
        )
        self.request_success = Counter(
            f"{PREFIX}request_success",
            "Outputs that ended.",
            ["finished_reason"],
            registry=self.registry,
        )
        self._connections_dropped = Counter(
            f"{PREFIX}connections_dropped",
            "Connections that the server ended and the client would have kept.",
            ["reason"],
            registry=self.registry,
        )

    def connection_dropped(self, reason: str) -> None:
        """Count a connection that the server ended."""
        self._connections_dropped.labels(reason).inc()

    def observe(self, timing: RequestTiming) -> None:
        """Take in the latencies of an output that has ended."""
        if timing.time_to_first_token_s is not None:
            self.time_to_first_token.observe((timing.time_to_first_token_s,))
        self.inter_token_latency.observe(timing.inter_token_s)
        self.e2e_latency.observe((timing.e2e_s,))

    def render(self, stats: EngineStats | None) -> bytes:
        """Return all metrics in Prometheus' text format, the engine's as ``stats`` has them; None: as they were."""
        if stats is not None:
            self._engine.stats = stats
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> LatencyHistogram:
        histogram = LatencyHistogram(PREFIX + name, text, buckets)
        self.registry.register(histogram)
        return histogram


class _EngineCollector(Collector):
    """The engine's own counts, as metrics."""

    def __init__(self) -> None:
        self.stats = EngineStats()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per count."""
        stats = self.stats
        used = stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0
        yield _gauge("num_requests_running", "Requests with a place, of which steps are formed.", stats.num_running)
        yield _gauge("num_requests_waiting", "Requests that wait for a place.", stats.num_waiting)
        yield _gauge("kv_cache_usage_perc", "Used share of the KV cache's blocks; 1 is all.", used)
        yield _counter("prefix_cache_queries", "Prompt tokens looked up in the cache.", stats.prefix_cache_queries)
        yield _counter("prefix_cache_hits", "Prompt tokens found in the cache.", stats.prefix_cache_hits)
        yield _counter("num_preemptions", "Requests that lost their place and start again.", stats.preemptions)
        yield _counter("prompt_tokens", "Prompt tokens processed.", stats.prompt_tokens)
        yield _counter("generation_tokens", "Tokens generated.", stats.generation_tokens)
        yield from self._speculation()
        yield from self._graphs()

    def _speculation(self) -> Iterable[Metric]:
        stats = self.stats
        yield _counter("spec_decode_num_drafts", "Runs of drafts that were judged.", stats.spec_decode_drafts)
        yield _counter("spec_decode_num_draft_tokens", "Drafts that were judged.", stats.spec_decode_draft_tokens)
        yield _counter("spec_decode_num_accepted_tokens", "Drafts that stood.", stats.spec_decode_accepted_tokens)
        per_position = CounterMetricFamily(
            f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
            "Drafts that stood, by their place in the run.",
            labels=("position",),
        )
        for position, count in enumerate(stats.spec_decode_accepted_per_position):
            per_position.add_metric((str(position),), count)
        yield per_position
        if stats.spec_decode_num_speculative_tokens is not None:
            yield _gauge(
                "spec_decode_num_speculative_tokens",
                "Drafts of each decode in the latest step.",
                stats.spec_decode_num_speculative_tokens,
            )
        if stats.spec_decode_speed_up is not None:
            yield _gauge(
                "spec_decode_speed_up",
                "Times as fast as plain decoding since start, by costs measured at start.",
                stats.spec_decode_speed_up,
            )

    def _graphs(self) -> Iterable[Metric]:
        stats = self.stats
        yield _labelled("graph_steps", "Steps by the mode they ran in.", ("stage", "mode"), stats.graph_steps)
        yield _labelled(
            "graph_fallbacks", "Steps that did not get the graph asked for.", ("stage", "reason"), stats.graph_fallbacks
        )
        yield _counter("graph_padding_tokens", "Tokens computed only to fill a graph.", stats.graph_padding_tokens)
        yield _gauge("graph_capture_seconds", "Time that capturing all graphs took.", stats.graph_capture_seconds)
        yield _gauge("graph_bytes", "Device memory of all graphs.", stats.graph_bytes)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _labelled(name: str, text: str, labels: tuple[str, str], counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for both, count in counts.items():
        family.add_metric(both.split(" ", 1), count)
    return family
