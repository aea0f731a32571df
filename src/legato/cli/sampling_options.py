"""What the terminal commands ask of sampling. Owns their defaults; limits and errors are those of SamplingParams."""

from dataclasses import dataclass
from pathlib import Path

from legato.config.options import option
from legato.errors import RequestError
from legato.flow.guide import Guide
from legato.flow.sampling_params import SamplingParams

SAMPLING = "Sampling"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Sampling as typed. The defaults are greedy, so that the same command prints the same text."""

    max_tokens: int = option(128, "Tokens to generate at most.", panel=SAMPLING)
    temperature: float = option(0.0, "0 takes the best token; 1 draws from the model's distribution.", panel=SAMPLING)
    top_k: int = option(0, "Draw from the k best tokens; 0: from all.", panel=SAMPLING)
    top_p: float = option(1.0, "Draw from the best tokens that have this probability together.", panel=SAMPLING)
    min_p: float = option(
        0.0, "Draw from tokens with at least this share of the best one's probability.", panel=SAMPLING
    )
    repetition_penalty: float = option(
        1.0, "Above 1: tokens of the prompt and the output become less likely.", panel=SAMPLING
    )
    stop: tuple[str, ...] = option((), "String that ends the output; may be repeated.", panel=SAMPLING)
    ignore_eos: bool = option(False, "Do not stop at the model's end tokens.", panel=SAMPLING)
    logprobs: int | None = option(
        None, "Log-probabilities of this many best tokens, in the --json output.", panel=SAMPLING
    )
    n: int = option(1, "Outputs per prompt.", panel=SAMPLING)
    json_schema: str | None = option(None, "File with a JSON schema that the output must have.", panel=SAMPLING)
    regex: str | None = option(None, "Regular expression that the output must match.", panel=SAMPLING)

    def params(self, seed: int) -> SamplingParams:
        """Return the engine's parameters. Raises RequestError for a value outside its range."""
        return SamplingParams(
            n=self.n,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            logprobs=self.logprobs,
            seed=seed,
            guided=self._guide(),
        )

    def _guide(self) -> Guide | None:
        if self.json_schema is not None and self.regex is not None:
            details = {"requested": "--json-schema and --regex", "options": "one of them"}
            raise RequestError("an output has one form", details)
        if self.regex is not None:
            return Guide.regex(self.regex, param="--regex")
        if self.json_schema is None:
            return None
        try:
            text = Path(self.json_schema).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError("the schema cannot be read", {"file": self.json_schema, "found": error}) from None
        return Guide.json_schema(text, param="--json-schema")
