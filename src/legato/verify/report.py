"""What a verification found, as plain values. Owns the form of the report; decides nothing but whether it passed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it must be."""

    check: str
    """``canary``, ``second_capture``, ``replay``, ``reachability``, ``addresses``, ``prompts``, ``acceptance`` or
    ``capture``."""
    engine: str
    key: str | None
    """Graph key, written out; None: an eager step."""
    layer: str | None
    """First layer that gives something else; None: none does, or it was not looked for."""
    token: int | None
    """First token that is affected: in the step, or for ``prompts`` in the output."""
    detail: str

    def __str__(self) -> str:
        place = [f"key {self.key}" if self.key else "an eager step"]
        place += [self.layer] if self.layer is not None else []
        place += [f"token {self.token}"] if self.token is not None else []
        return f"{self.engine}: {self.check}: {', '.join(place)}: {self.detail}"


@dataclass(slots=True, kw_only=True)
class EngineResult:
    """One engine: what it captured, how often it replayed, and how near it came to the eager one."""

    name: str
    num_keys: int = 0
    """Captured graphs that serve."""
    num_dropped: int = 0
    num_reachable: int = 0
    num_replayed: int = 0
    num_captured_twice: int = 0
    """Keys proven over a second capture with other data; a key that an earlier engine proved is not proven again."""
    num_tokens: int = 0
    """Output tokens compared with the eager engine's."""
    num_near_ties: int = 0
    """Outputs that went on differently after two tokens whose scores tie; not compared from there on."""
    max_logprob_difference: float = 0.0
    max_logit_difference: float = 0.0
    """Over all keys, replayed with padding against eager without."""
    seconds: float = 0.0
    """From the building to the last check; for an overlapped loop, which uses a built engine, its steps."""
    steps: dict[str, int] = field(default_factory=dict)
    """'stage mode' -> steps of the prompts."""
    accepted: tuple[int, ...] = ()
    """With a drafter: how often the first, second, … draft stood."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All engines of one verification."""

    model: str
    device: str
    dtype: str
    attention_backend: str
    relative_tolerance: float
    """Share of the largest value that two computations may be apart."""
    seen_apart: float = 0.0
    """The most that plain attention was apart from the eager engine; log-probabilities may be twice that, too."""
    engines: Sequence[EngineResult]
    notes: Sequence[str] = ()
    """What could not be checked, and why."""

    @property
    def findings(self) -> list[Finding]:
        """Everything found, in the order of checking."""
        return [finding for engine in self.engines for finding in engine.findings]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with ``passed`` and the ``first`` finding."""
        findings = self.findings
        first = asdict(findings[0]) if findings else None
        engines = [asdict(engine) | {"passed": engine.passed} for engine in self.engines]
        return asdict(self) | {"engines": engines, "passed": self.passed, "first": first}
