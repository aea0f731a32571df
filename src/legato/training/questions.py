"""Prompts -> what the target is asked, in token ids. Owns which prompts are held out, and what the target invents.

A model that was trained on whole conversations also knows what users write: after the words that open a user's turn it
makes up a prompt (Xu et al., arXiv 2406.08464). Text of more kinds than the files have makes a head that drafts more
kinds.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from legato.engine.input_processor import InputProcessor
from legato.errors import ConfigError
from legato.loading.tokenizer import Tokenizer
from legato.sampling.seeds import mix_seed
from legato.training.answers import Question
from legato.training.prompts import Conversation
from legato.training.settings import TrainingOptions

_MARK = "\u2063user\u2063"
"""Stands for a user's words where the opening of their turn is looked for."""
_MAX_INVENTED_TOKENS = 192
_MAX_HELD_OUT_SHARE = 0.1
_LEAST_ANSWER_TOKENS = 8
"""A prompt that leaves less room is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Prompts to train on and prompts to evaluate on; none is both."""

    training: list[Conversation]
    held_out: list[Conversation]


def split_prompts(
    data: Sequence[Conversation], held_out: Sequence[Conversation], options: TrainingOptions, *, seed: int
) -> Split:
    """Return what is trained on and what is evaluated on; without ``held_out``, some of ``data`` are held out.

    Raises ConfigError where nothing is left to train on.
    """
    count = options.num_held_out
    if held_out:
        chosen = list(held_out[:count])
    else:
        chosen = random.Random(seed).sample(list(data), min(count, max(1, int(len(data) * _MAX_HELD_OUT_SHARE))))
    kept = set(held_out) | set(chosen)
    training = [prompt for prompt in data if prompt not in kept]
    if not training:
        details = {"found": f"{len(data)} prompts, all of them held out", "options": "more --data"}
        raise ConfigError("no prompt is left to train on", details)
    return Split(training=training, held_out=chosen)


def prompt_token_ids(processor: InputProcessor, tokenizer: Tokenizer | None, prompt: Conversation) -> tuple[int, ...]:
    """Return a prompt as the model's chat template writes it; of a model without one, the user's words alone."""
    if tokenizer is not None and tokenizer.chat_template is None:
        return processor.token_ids(prompt[-1][1])
    messages = [{"role": role, "content": content} for role, content in prompt]
    return processor.token_ids(processor.chat_prompt(messages), add_special_tokens=False)


def training_questions(prompts: Sequence[tuple[int, ...]], options: TrainingOptions, *, seed: int) -> list[Question]:
    """Return every answer that is trained on, of the prompts that leave room for one."""
    temperatures = [0.0] * options.greedy_answer + [1.0] * options.sampled_answers
    return [
        Question(
            prompt_token_ids=prompt,
            temperature=temperature,
            max_tokens=_room(prompt, options),
            seed=mix_seed(seed, number * len(temperatures) + index),
        )
        for number, prompt in enumerate(prompts)
        if _room(prompt, options) >= _LEAST_ANSWER_TOKENS
        for index, temperature in enumerate(temperatures)
    ]


def held_out_questions(prompts: Sequence[tuple[int, ...]], options: TrainingOptions) -> list[Question]:
    """Return the greedy answers that heads are evaluated on."""
    return [
        Question(prompt_token_ids=prompt, temperature=0.0, max_tokens=_room(prompt, options), seed=0)
        for prompt in prompts
        if _room(prompt, options) >= _LEAST_ANSWER_TOKENS
    ]


def inventing_questions(
    processor: InputProcessor, tokenizer: Tokenizer | None, options: TrainingOptions, *, seed: int
) -> list[Question]:
    """Return what makes the target invent prompts. Raises ConfigError for a model that knows no chat."""
    if options.invented_prompts == 0:
        return []
    if tokenizer is None or tokenizer.chat_template is None:
        details = {"requested": f"--invented-prompts {options.invented_prompts}", "found": "no chat template"}
        raise ConfigError("this model cannot invent prompts", details)
    opening = processor.chat_prompt([{"role": "user", "content": _MARK}], add_generation_prompt=False)
    prompt = processor.token_ids(opening.partition(_MARK)[0], add_special_tokens=False)
    most = min(_MAX_INVENTED_TOKENS, options.max_length - len(prompt))
    if not prompt or most < 1:
        details = {
            "found": f"a template that opens with {len(prompt)} tokens",
            "limit": f"--max-length {options.max_length}",
        }
        raise ConfigError("this model cannot invent prompts", details)
    return [
        Question(prompt_token_ids=prompt, temperature=1.0, max_tokens=most, seed=mix_seed(seed, number))
        for number in range(options.invented_prompts)
    ]


def invented_prompts(
    tokenizer: Tokenizer, end_token_ids: frozenset[int], answers: Sequence[tuple[int, ...]]
) -> list[Conversation]:
    """Return the different prompts of ``answers`` that came to an end."""
    texts = [tokenizer.decode(answer).strip() for answer in answers if answer and answer[-1] in end_token_ids]
    return [(("user", text),) for text in dict.fromkeys(texts) if text]


def _room(prompt: Sequence[int], options: TrainingOptions) -> int:
    """Return the tokens that an answer may have."""
    return min(options.max_answer_tokens, options.max_length - len(prompt))
