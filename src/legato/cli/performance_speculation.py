"""What rounds of drafts and their verification take. Owns which plain step a round is held to."""

from collections.abc import Sequence

from legato.cli.markdown import markdown_table
from legato.cli.performance_rows import Found, held_beside, key_of, latest, links, pairs

_SETTING = ("model", "dtype", "batch_size", "input_len", "output_len")


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
