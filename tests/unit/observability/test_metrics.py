from legato.observability.metrics import Metrics
from legato.observability.request_timing import RequestTiming
from legato.observability.stats import EngineStats


def lines(metrics, stats=None):
    rendered = metrics.render(stats).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in rendered if not line.startswith("#"))


def a_timing(*, first_token=1.5, gaps=(0.25, 0.25)):
    return RequestTiming(
        request_id="a",
        index=0,
        num_prompt_tokens=4,
        num_output_tokens=3,
        arrival=1.0,
        first_token=first_token,
        finished=2.0,
        inter_token_s=gaps,
    )


def test_the_engines_counts_are_shown_as_they_are_at_the_scrape():
    metrics = Metrics()
    stats = EngineStats(
        num_running=3, kv_blocks_used=25, kv_blocks_total=100, prefix_cache_hits=7, graph_steps={"target full": 5}
    )
    shown = lines(metrics, stats)
    assert shown["legato:num_requests_running"] == "3.0"
    assert shown["legato:kv_cache_usage_perc"] == "0.25"
    assert shown["legato:prefix_cache_hits_total"] == "7.0"
    assert shown['legato:graph_steps_total{mode="full",stage="target"}'] == "5.0"


def test_without_new_counts_the_last_ones_stand():
    metrics = Metrics()
    lines(metrics, EngineStats(num_waiting=4))
    assert lines(metrics)["legato:num_requests_waiting"] == "4.0"


def test_an_engine_without_blocks_uses_none_of_them():
    assert lines(Metrics())["legato:kv_cache_usage_perc"] == "0.0"


def test_latencies_are_observed_once_per_output_and_once_per_gap():
    metrics = Metrics()
    metrics.observe(a_timing())
    shown = lines(metrics)
    assert shown["legato:time_to_first_token_seconds_sum"] == "0.5"
    assert shown["legato:inter_token_latency_seconds_count"] == "2.0"
    assert shown["legato:e2e_request_latency_seconds_sum"] == "1.0"


def test_an_output_without_tokens_has_no_first_one():
    metrics = Metrics()
    metrics.observe(a_timing(first_token=None, gaps=()))
    assert lines(metrics)["legato:time_to_first_token_seconds_count"] == "0.0"


def test_two_servers_in_one_process_do_not_share_their_metrics():
    one, two = Metrics(), Metrics()
    one.request_success.labels("stop").inc()
    assert 'legato:request_success_total{finished_reason="stop"}' in lines(one)
    assert 'legato:request_success_total{finished_reason="stop"}' not in lines(two)


def test_drafts_are_counted_under_the_names_that_dashboards_know():
    stats = EngineStats(
        spec_decode_drafts=10,
        spec_decode_draft_tokens=30,
        spec_decode_accepted_tokens=14,
        spec_decode_accepted_per_position=(8, 5, 1),
    )
    shown = lines(Metrics(), stats)
    assert shown["legato:spec_decode_num_drafts_total"] == "10.0"
    assert shown["legato:spec_decode_num_draft_tokens_total"] == "30.0"
    assert shown["legato:spec_decode_num_accepted_tokens_total"] == "14.0"
    by_position = [shown[f'legato:spec_decode_num_accepted_tokens_per_pos_total{{position="{n}"}}'] for n in range(3)]
    assert by_position == ["8.0", "5.0", "1.0"]
    assert (stats.acceptance_length, stats.acceptance_rates) == (2.4, (0.8, 0.5, 0.1))


def test_without_drafts_there_is_no_acceptance():
    assert (EngineStats().acceptance_length, EngineStats().acceptance_rates) == (None, ())


def test_the_choice_of_drafts_is_shown_where_there_is_one():
    shown = lines(Metrics(), EngineStats(spec_decode_num_speculative_tokens=0, spec_decode_speed_up=1.5))
    assert shown["legato:spec_decode_num_speculative_tokens"] == "0.0"
    assert shown["legato:spec_decode_speed_up"] == "1.5"
    assert not any("speed_up" in name or "num_speculative" in name for name in lines(Metrics(), EngineStats()))
