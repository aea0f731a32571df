"""What came back for some prompts, and how fast. Owns the form of answers and their times; knows no engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

Progress = Callable[[int, int], None]
"""Told (questions answered, output tokens so far)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. Seconds from when its request was handed over."""

    text: str
    num_prompt_tokens: int
    num_output_tokens: int
    latency_s: float
    token_ids: tuple[int, ...] | None = None
    """None: the server does not tell."""
    ms_per_token: float | None = None
    """Between two tokens, on average; None: not observed, or there are not two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a run of answers was."""

    seconds: float
    questions_per_s: float
    mean_latency_s: float
    median_latency_s: float
    output_tok_per_s: float
    total_tok_per_s: float
    """Prompts included, cached or not."""
    tpot_ms: float | None
    """Median over the answers of the time per output token after the first; None: not observed."""


def speed_of(answers: Sequence[Answer], seconds: float) -> Speed:
    """Return the speed of answers that took ``seconds`` altogether; there must be one."""
    output = sum(answer.num_output_tokens for answer in answers)
    total = output + sum(answer.num_prompt_tokens for answer in answers)
    per_token = [answer.ms_per_token for answer in answers if answer.ms_per_token is not None]
    latencies = [answer.latency_s for answer in answers]
    return Speed(
        seconds=seconds,
        questions_per_s=len(answers) / seconds,
        mean_latency_s=fmean(latencies),
        median_latency_s=median(latencies),
        output_tok_per_s=output / seconds,
        total_tok_per_s=total / seconds,
        tpot_ms=median(per_token) if per_token else None,
    )
