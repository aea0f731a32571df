"""The page of figures: what stands beside what, and what is left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from legato.cli.performance_page import performance_page
from legato.cli.speculation_sweeps import speculation_sweeps

LEGATO = {"engine": "legato", "version": "0.1.0", "backend": "triton", "policy": "full_and_piecewise"}
VLLM = {"engine": "vllm", "version": "9.9", "backend": None, "policy": None}
DECODE = {"model": "m", "dtype": "bfloat16", "case": "decode-b1", "batch_size": 1, "input_len": 128, "output_len": 256}
LOOP = {"model": "m", "dtype": "bfloat16", "case": "closed-16", "concurrency": 16, "num_requests": 128}
LOOP |= {"input_len": 1024, "output_len": 128, "ttft_ms": {"mean": 31.0, "p99": 62.0}}
LOOP |= {"tpot_ms": {"mean": 4.0}, "shares": {"full": 0.75}}


@pytest.fixture
def page(tmp_path: Path) -> Any:
    """Return what writes result files, as {name: rows}, and makes the page of them."""

    def page(device: str = "a GPU", **files: list[dict[str, Any]]) -> str:
        folder = tmp_path / "benchmarks" / "results"
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in files.items():
            content = {"environment": {"device": device}, "command": "legato bench x", "commit": "0123456789"}
            (folder / f"{name}.json").write_text(json.dumps(content | {"rows": rows}))
        return performance_page(tmp_path)

    return page


def lines_of(page: str, section: str) -> list[str]:
    """Return the lines of a section's tables, without their headings."""
    text = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| ")][2:]


def test_a_section_without_rows_is_left_out(page: Any) -> None:
    assert page() == ""
    text = page(one=[LEGATO | DECODE | {"tpot_ms": 4.0}])
    assert "## Decode latency" in text
    assert "## Throughput" not in text
    assert "## Start-up" not in text


def test_a_case_stands_beside_vllms_with_the_ratio_and_its_file(page: Any) -> None:
    text = page(one=[LEGATO | DECODE | {"tpot_ms": 4.0, "host_ms_per_step": 0.5}, VLLM | DECODE | {"tpot_ms": 5.0}])
    [line] = lines_of(text, "Decode latency")
    assert "| 4.000 | 5.000 (9.9) | 1.25 | 0.500 | [one](../benchmarks/results/one.json) |" in line


def test_the_latest_file_of_a_case_counts(page: Any) -> None:
    text = page(
        a=[LEGATO | DECODE | {"tpot_ms": 9.0}, VLLM | DECODE | {"tpot_ms": 5.0}], b=[LEGATO | DECODE | {"tpot_ms": 4.0}]
    )
    [line] = lines_of(text, "Decode latency")
    assert "| 4.000 | 5.000 (9.9) | 1.25 |" in line
    assert "[b](" in line
    assert "[a](" in line


def test_rounds_of_drafts_have_a_table_of_their_own_and_are_held_to_plain_steps(page: Any) -> None:
    rounds = DECODE | {"case": "eagle3-k3-a2.8-b1"}
    own = LEGATO | rounds | {"tpot_ms": 1.5, "round_ms": 4.25, "acceptance_length": 2.83}
    text = page(one=[LEGATO | DECODE | {"tpot_ms": 4.0}], two=[own, VLLM | rounds | {"tpot_ms": 3.0}])
    [line] = lines_of(text, "Speculative decoding")
    assert "| 1.500 | 3.000 (9.9) | 2.00 | 2.83 | 4.250 | 0.250 | [two](" in line
    [line] = lines_of(text, "Decode latency")
    assert "`decode-b1`" in line


def test_throughput_is_ahead_where_it_is_larger(page: Any) -> None:
    rows = [LEGATO | LOOP | {"total_tok_per_s": 22000.0}, VLLM | LOOP | {"total_tok_per_s": 17600.0, "shares": None}]
    [line] = lines_of(page(one=rows), "Throughput")
    assert "| 22,000 | 17,600 (9.9) | 1.25 | 31, 62 | 31, 62 | 75% |" in line


def test_devices_have_tables_of_their_own(page: Any) -> None:
    page(device="GPU one", a=[LEGATO | DECODE | {"tpot_ms": 4.0}])
    text = page(device="GPU two", b=[LEGATO | DECODE | {"tpot_ms": 3.0}])
    assert text.index("### GPU one") < text.index("4.000") < text.index("### GPU two") < text.index("3.000")


def test_the_parts_of_a_start_are_columns(page: Any) -> None:
    subject = {"model": "m", "dtype": "bfloat16", "case": "startup-cold"}
    starts = [
        LEGATO | subject | {"seconds": 12.0, "phases": {"import": 8.0, "capture": 4.0}},
        VLLM | subject | {"seconds": 90.0, "phases": {"import": 20.0, "build": 70.0}},
    ]
    own, peer = lines_of(page(one=starts), "Start-up")
    assert "| 12.0 | 8.0 | 4.0 | - |" in own
    assert "| 90.0 | 20.0 | - | 70.0 |" in peer


def test_backends_that_ran_under_both_policies_are_compared_and_keep_out_of_the_other_tables(page: Any) -> None:
    piecewise = LEGATO | {"policy": "piecewise"}
    accuracy = {"model": "m", "dtype": "bfloat16", "case": "gsm8k"}
    text = page(
        one=[
            piecewise | DECODE | {"tpot_ms": 6.0},
            LEGATO | DECODE | {"tpot_ms": 4.0},
            piecewise | LOOP | {"total_tok_per_s": 15000.0},
            LEGATO | LOOP | {"total_tok_per_s": 20000.0},
        ],
        two=[row | accuracy | {"accuracy_strict": 0.5} for row in (piecewise, LEGATO)],
    )
    before, after = lines_of(text, "Piecewise against full and piecewise graphs")
    assert before == "| m | `triton` | `piecewise` | 6.000 | 15,000 | 4.000 | 50.0% |"
    assert after == "| m | `triton` | `full_and_piecewise` | 4.000 | 20,000 | 4.000 | 50.0% |"
    assert lines_of(text, "Decode latency") == lines_of(text, "Throughput") == []


def test_modes_are_a_line_per_policy_with_the_picture(page: Any, tmp_path: Path) -> None:
    rows = [
        LEGATO | DECODE | {"case": f"modes-b{size}", "batch_size": size, "policy": policy, "tpot_ms": 1.5 * size}
        for policy in ("none", "full")
        for size in (1, 2)
    ]
    page(one=rows)
    (tmp_path / "benchmarks" / "results" / "modes.png").touch()
    text = page()
    assert [line.split(" | ")[2:4] for line in lines_of(text, "Graph policies")] == [["1.500", "3.000"]] * 2
    assert "](../benchmarks/results/modes.png)" in text
    assert lines_of(text, "Decode latency") == []


def test_attention_kernels_are_a_column_per_backend(page: Any) -> None:
    rows = [
        {"row": "32 x 1024", "backend": "triton", "us": 45.0},
        {"row": "32 x 1024", "backend": "flash_attn_3", "us": 43.21},
        {"row": "1 x 1024", "backend": "triton", "us": 12.0},
        {"row": "1 x 1024", "backend": "flash_attn_3", "refused": "no kernel"},
    ]
    both, one = lines_of(page(one=rows), "Attention kernels")
    assert both.startswith("| 32 x 1024 | 45.0 | 43.2 |")
    assert one.startswith("| 1 x 1024 | 12.0 | - |")


def test_a_pair_with_transformers_tells_the_spread_and_equal_tokens(page: Any) -> None:
    spread = {"median": 1.3, "min": 1.2, "max": 1.4}
    over = {"over": "transformers", "total": spread, "per_token": spread, "equal_tokens": 1.0}
    row = LEGATO | DECODE | {"name": "legato", "tpot_ms": 24.0, "speed_ups": [over]}
    text = page(one=[row, row | {"engine": "transformers", "name": "transformers", "speed_ups": []}])
    [line] = lines_of(text, "Beside transformers")
    assert "| 1 | 24.00 | 1.30 (1.20-1.40) | 1.30 | 100% |" in line
    assert lines_of(text, "Decode latency") == []


def test_a_load_on_a_server_is_the_median_of_its_latest_runs_beside_vllms(page: Any) -> None:
    load = {"model": "m", "case": "random c=4", "tokens_counted_by": "server", "completed": 8, "failed": 0}

    def run(engine: str, first: float, rate: float, **more: Any) -> dict[str, Any]:
        latencies = {"ttft_ms": {"median": first}, "tpot_ms": {"median": first / 10}}
        return load | {"engine": engine, "output_tok_per_s": rate} | latencies | more

    fair = {"fairness": {"ratio": 1.25}}
    text = page(
        a=[run("legato", 999.0, 1.0)],
        b=[run("legato", first, 2000.0, **fair) for first in (10.0, 30.0, 20.0)],
        c=[run("vllm", 40.0, 1000.0), run("vllm", 40.0, 1000.0)],
        d=[run("server", 1.0, 1.0)],
    )
    [line] = lines_of(text, "Load on a server")
    assert "| random c=4 | m | 24, 0 | 20.0 | 40.0 | 2.00 | 4.00 | 2,000 | 1,000 | 1.25 | [b](" in line
    assert "[c](" in line and "[a](" not in line


def test_what_a_server_adds_stands_beside_the_engine_alone(page: Any) -> None:
    row = {"model": "m", "case": "http-256", "concurrency": 256, "in_process_tpot_ms": 10.0, "http_tpot_ms": 10.2}
    row |= {"tpot_ratio": 1.02, "in_process_tok_per_s": 25600.0, "http_tok_per_s": 25000.0, "throughput_ratio": 0.977}
    [line] = lines_of(page(one=[row]), "What the server adds")
    assert "| 256 | m | 10.000 | 10.200 | 1.020 | 25,600 | 25,000 | 0.977 | [one](" in line


def test_every_file_is_listed_with_its_commit_and_command(page: Any) -> None:
    [line] = lines_of(page(one=[LEGATO | DECODE | {"tpot_ms": 4.0}]), "Files")
    assert line == "| [one.json](../benchmarks/results/one.json) | a GPU | 0123456 | `legato bench x` |"


DRAFTED = {"model": "m", "dtype": "bfloat16", "case": "eagle3-k3", "method": "eagle3", "num_speculative_tokens": 3}
DRAFTED |= {"batch_size": 16, "num_prompts": 80, "max_tokens": 512, "output_tok_per_s": 5000.0}
DRAFTED |= {"acceptance_length": 2.41, "acceptance_rates": [0.75, 0.42, 0.24]}
DRAFTED |= {"plain_tok_per_s": 2500.0, "over_plain": 2.0, "same_as_plain": 0.975}
PEER_DRAFTED = DRAFTED | {"acceptance_length": 2.39, "plain_tok_per_s": None, "over_plain": None, "same_as_plain": None}


def test_a_drafter_on_real_prompts_stands_beside_vllm_with_the_same_drafter(page: Any) -> None:
    text = page(one=[LEGATO | DRAFTED, VLLM | PEER_DRAFTED])
    [line] = lines_of(text, "Drafters on real prompts")
    assert "| 2.410 | 2.390 (9.9) | 0.75 0.42 0.24 | 5,000 | 2,500 | 2.00 | 98% |" in line
    assert "## Speculative decoding" not in text


SWEPT = {"model": "m", "dtype": "bfloat16", "method": "eagle3", "text_acceptance_length": 2.8, "batch_size": 8}
SWEPT |= {"input_len": 128, "output_len": 128, "round_ms": 5.0, "acceptance_length": 2.8}
SWEEP = [
    LEGATO | SWEPT | {"case": f"a{kind}", "num_speculative_tokens": kind, "tpot_ms": ms} | ratios
    for kind, ms, ratios in (
        (0, 4.0, {"over_plain": 1.0, "over_best": 0.5}),
        (3, 2.0, {"over_plain": 2.0, "over_best": 1.0}),
        ("auto", 2.02, {"over_plain": 1.98, "over_best": 0.99}),
    )
]


def test_a_sweep_is_told_by_its_picture_and_the_worst_of_the_choice_and_on_no_other_page(
    page: Any, tmp_path: Path
) -> None:
    text = page(sweep=SWEEP)
    assert "## Decode latency" not in text and "## Speculative decoding" not in text
    (tmp_path / "benchmarks" / "results" / "sweep.png").write_bytes(b"")
    told = speculation_sweeps(tmp_path)
    assert "](../benchmarks/results/sweep.png)" in told
    assert "at least 0.990 times" in told
    assert "| 2.8 | 8 | 4.000 | 2.00 | 1.98 | 0.990 |" in told


def test_there_is_nothing_to_tell_without_a_sweep(page: Any, tmp_path: Path) -> None:
    page(one=[LEGATO | DRAFTED])
    assert speculation_sweeps(tmp_path) == ""
