"""What rounds of drafts take, and what drafters bring. Owns which plain step a round is held to."""

from collections.abc import Sequence

from legato.cli.markdown import markdown_table
from legato.cli.performance_rows import Found, held_beside, key_of, latest, links, pairs

_SETTING = ("model", "dtype", "batch_size", "input_len", "output_len")
_DRAFTED = ("model", "dtype", "method", "num_speculative_tokens")


def round_cases(rows: Sequence[Found]) -> set[str]:
    """Return the cases of speculative decoding, by Legato's rows: a peer need not tell how many drafts it accepts."""
    return {row["case"] for row in rows if row.get("acceptance_length")}


def speculation_section(rows: Sequence[Found]) -> str:
    """Return time per token and per round beside vLLM's, and what a round takes over a plain step of the same batch."""
    cases = round_cases(rows)
    measured = [row for row in rows if row.get("case") in cases and row.get("tpot_ms")]
    steps = (row for row in rows if row["engine"] == "legato" and str(row.get("case")).startswith("decode"))
    plain = {key_of(_SETTING)(row): row for row in latest(steps, key_of(_SETTING))}
    lines = [
        (
            f"`{own['case']}`",
            f"{own['model']}, {own['dtype']}",
            f"{own['tpot_ms']:.3f}",
            *held_beside(own, other, "tpot_ms", lambda mine, its: its / mine, "{:.3f}"),
            f"{own['acceptance_length']:.2f}",
            f"{own['round_ms']:.3f}",
            _over(own, plain.get(key_of(_SETTING)(own))),
            links(own, other),
        )
        for own, other in pairs(measured, (*_SETTING, "case"))
    ]
    columns = (
        "case",
        "model",
        "Legato ms/token",
        "vLLM ms/token",
        "times as fast",
        "tokens/round",
        "ms/round",
        "over a plain step, ms",
        "files",
    )
    return markdown_table(columns, lines) if lines else ""


def _over(own: Found, plain: Found | None) -> str:
    return "-" if plain is None else f"{own['round_ms'] - plain['tpot_ms']:.3f}"


def is_sweep(row: Found) -> bool:
    """Return whether the row is one of a sweep over numbers of drafts, which stands by its picture."""
    return row.get("text_acceptance_length") is not None


def drafter_section(rows: Sequence[Found]) -> str:
    """Return what drafters bring on prompts that people wrote, beside vLLM with the same drafter."""
    measured = [row for row in rows if "same_as_plain" in row.row]
    lines = [
        (
            f"`{own['case']}`",
            f"{own['model']}, {own['dtype']}",
            f"{own['method']}, {own['num_speculative_tokens']}",
            f"{own['num_prompts']}, {own['batch_size']}",
            _length(own),
            "-" if other is None else f"{_length(other)} ({other['version']})",
            " ".join(f"{rate:.2f}" for rate in own["acceptance_rates"]),
            f"{own['output_tok_per_s']:,.0f}",
            f"{own['plain_tok_per_s']:,.0f}",
            f"{own['over_plain']:.2f}",
            f"{own['same_as_plain']:.0%}",
            links(own, other),
        )
        for own, other in pairs(measured, (*_DRAFTED, "case", "batch_size", "num_prompts", "max_tokens"))
    ]
    columns = (
        "case",
        "model",
        "drafter, drafts",
        "prompts, at once",
        "tokens/round",
        "vLLM tokens/round",
        "accepted by position",
        "tokens/s",
        "plain tokens/s",
        "times as fast",
        "same answers",
        "files",
    )
    return markdown_table(columns, lines) if lines else ""


def _length(row: Found) -> str:
    length = row["acceptance_length"]
    return "-" if length is None else f"{length:.3f}"
