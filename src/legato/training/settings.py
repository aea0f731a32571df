"""What a training run may be asked for, as typed. Owns names, defaults and limits; imports no torch."""

from dataclasses import dataclass

from legato.config.options import option
from legato.errors import ConfigError

DATA = "Data"
HEAD = "Head"
TRAINING = "Training"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What is trained, and on what, beside the files of prompts."""

    held_out: tuple[str, ...] = option(
        (),
        "File of prompts to evaluate on, none of which is trained on; repeat for several. "
        "Default: some of the data's own prompts.",
        metavar="FILE",
        panel=DATA,
    )
    num_held_out: int = option(64, "Prompts to evaluate on at most.", panel=DATA)
    greedy_answer: bool = option(True, "Train on the target's greedy answer to each prompt.", panel=DATA)
    sampled_answers: int = option(
        0, "Answers to each prompt that are drawn at temperature 1, beside the greedy one.", panel=DATA
    )
    invented_prompts: int = option(
        0, "Prompts that a chat model makes up itself, beside those of the files: more text of more kinds.", panel=DATA
    )
    max_answer_tokens: int = option(512, "Tokens of each answer at most.", panel=DATA)
    max_length: int = option(
        1024, "Tokens of prompt and answer together at most; longer prompts are left out.", panel=DATA
    )
    draft_vocab_size: int = option(
        16384, "Tokens that the head can draft: those that answers use most. At most the target's.", panel=HEAD
    )
    auxiliary_layers: tuple[int, ...] | None = option(
        None,
        "Target layers whose inputs the head reads, three; default: a low, a middle and a high one.",
        metavar="N,N,N",
        panel=HEAD,
    )
    intermediate_size: int | None = option(
        None,
        "Width of the head's feed-forward layer; default: the target's. A wider one learns more and costs little.",
        panel=HEAD,
    )
    unroll: int = option(4, "Steps that the head is unrolled over its own outputs in training.", panel=TRAINING)
    epochs: int = option(4, "Times that each answer is trained on.", panel=TRAINING)
    batch_tokens: int = option(16384, "Tokens of a batch, padding included.", panel=TRAINING)
    learning_rate: float = option(1e-3, "Largest step of AdamW; it falls to 0 along a cosine.", panel=TRAINING)
    warmup_steps: int = option(100, "Steps until the learning rate is at its largest.", panel=TRAINING)
    evaluate_every: int = option(200, "Steps between evaluations on held-out prompts.", panel=TRAINING)
    checkpoint_every: int = option(500, "Steps between checkpoints that --resume goes on from.", panel=TRAINING)
    max_minutes: float | None = option(
        None,
        "Minutes that the whole run may take, answers included: the first steps show how many fit, at most those of "
        "--epochs, and the learning rate falls to 0 at the last of them. With --resume, minutes used before count, and "
        "a number of steps that was decided stays.",
        panel=TRAINING,
    )
    resume: bool = option(
        False,
        "Go on from the last checkpoint in --out, to the same number of steps; the other options must be as they were.",
        panel=TRAINING,
    )

    def check(self) -> None:
        """Raise ConfigError for numbers that make no run."""
        least = {
            "num_held_out": 1,
            "sampled_answers": 0,
            "invented_prompts": 0,
            "max_answer_tokens": 3,
            "max_length": 8,
            "draft_vocab_size": 1,
            "unroll": 1,
            "epochs": 1,
            "batch_tokens": 1,
            "warmup_steps": 0,
            "evaluate_every": 1,
            "checkpoint_every": 1,
        }
        if self.intermediate_size is not None:
            least["intermediate_size"] = 1
        for name, limit in least.items():
            if getattr(self, name) < limit:
                details = {"requested": getattr(self, name), "limit": f"at least {limit}"}
                raise ConfigError(f"--{name.replace('_', '-')} is out of range", details)
        for name in ("learning_rate", "max_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                details = {"requested": value, "limit": "above 0"}
                raise ConfigError(f"--{name.replace('_', '-')} is out of range", details)
        if not self.greedy_answer and self.sampled_answers == 0:
            details = {"requested": "--no-greedy-answer", "options": "--sampled-answers 1 | leave it out"}
            raise ConfigError("no answers would be trained on", details)
