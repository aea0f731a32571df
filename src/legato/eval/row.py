"""One run over the questions, as a result file holds it. Owns the names of its figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from legato.eval.answers import Answer, speed_of
from legato.eval.differences import Comparison, Difference
from legato.eval.questions import Questions
from legato.eval.score import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """One engine, or one server."""

    engine: str
    """``legato``, or ``server``."""
    case: str
    """``gsm8k``, with the number of examples."""
    model: str
    dtype: str | None = None
    """None: a server's, which is not known."""
    backend: str | None = None
    """Attention backend; None: a server's."""
    policy: str | None = None
    num_questions: int
    max_tokens: int
    accuracy_strict: float
    interval_strict: tuple[float, float]
    """95 % confidence interval."""
    accuracy_flexible: float
    interval_flexible: tuple[float, float]
    num_without_mark: int
    """Answers without a number behind ``####``, which strict matching asks for."""
    num_invalid: int
    """Answers without any number."""
    seconds: float
    questions_per_s: float
    mean_latency_s: float
    median_latency_s: float
    output_tok_per_s: float
    total_tok_per_s: float
    tpot_ms: float | None
    compared_with: str | None = None
    """'backend policy' whose tokens these are held to; None: nothing stands before it."""
    identical: int | None = None
    """Answers with the same token ids as those."""
    num_near_ties: int = 0
    """Answers that differ, first where two tokens tie."""
    differences: tuple[Difference, ...] = ()
    graph_steps: dict[str, int] = field(default_factory=dict)

    @property
    def num_other(self) -> int:
        """Answers that differ otherwise than by a near-tie."""
        return len(self.differences) - self.num_near_ties


def row(
    asked: Questions,
    answers: Sequence[Answer],
    seconds: float,
    *,
    engine: str,
    model: str,
    dtype: str | None = None,
    backend: str | None = None,
    policy: str | None = None,
    graph_steps: dict[str, int] | None = None,
    compared: Comparison | None = None,
) -> EvalRow:
    """Return the row of one run, its answers judged; ``compared`` None: nothing stands before it."""
    score = judge(asked.questions, [answer.text for answer in answers])
    speed = speed_of(answers, seconds)
    strict, flexible = score.strict, score.flexible
    differences = () if compared is None else compared.differences
    return EvalRow(
        engine=engine,
        case=asked.case,
        model=model,
        dtype=dtype,
        backend=backend,
        policy=policy,
        num_questions=strict.num_questions,
        max_tokens=asked.max_tokens,
        accuracy_strict=strict.share,
        interval_strict=(strict.low, strict.high),
        accuracy_flexible=flexible.share,
        interval_flexible=(flexible.low, flexible.high),
        num_without_mark=score.num_without_mark,
        num_invalid=score.num_invalid,
        seconds=speed.seconds,
        questions_per_s=speed.questions_per_s,
        mean_latency_s=speed.mean_latency_s,
        median_latency_s=speed.median_latency_s,
        output_tok_per_s=speed.output_tok_per_s,
        total_tok_per_s=speed.total_tok_per_s,
        tpot_ms=speed.tpot_ms,
        compared_with=None if compared is None else compared.compared_with,
        identical=None if compared is None else strict.num_questions - len(differences),
        num_near_ties=sum(difference.near_tie for difference in differences),
        differences=differences,
        graph_steps=graph_steps or {},
    )
