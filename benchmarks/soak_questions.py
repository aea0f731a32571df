"""What a soak asks of a server: questions of every kind, drawn at random from a seed. Knows nothing of answers.

A question gives the same answer whenever it is asked: it is greedy, or it brings a seed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Body = dict[str, Any]
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEXT = (
    "a an the of to in on and but or if so as at by for from with over under red green blue river stone house garden "
    "morning winter engine paper music number seven twelve question answer teacher captain island weather forest "
    "window market letter story Zürich 東京 naïve café déjà 🎵 runs sings writes builds opens closes remembers forgets "
    "slowly quickly never always perhaps because although before after between through"
)
WORDS = TEXT.split()
OPENINGS = (
    "You are a patient assistant who answers in plain words and never guesses. ",
    "The following is a story about a ship, its captain, and the long way home. ",
    "",
)
"""Beginnings that many questions share, so that the prefix cache is used and its blocks are shared."""
STOPS = [" the", "e", "\n", ". ", "and", "s", "o", "of", "!"]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "bb", "ccc"]}, "count": {"type": "integer"}, "good": {"type": "boolean"}},
    "required": ["kind", "good"],
}
GUIDES: tuple[Body, ...] = (
    {"guided_regex": r"[0-9]{3}-[a-f]{2,6}"},
    {"guided_choice": ["yes", "no", "it depends"]},
    {"guided_grammar": 'root ::= "<" [a-c]+ ">" | "[" [0-9]{2,8} "]"'},
    {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request that has one right answer."""

    kind: str
    route: str
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRequest:
    """One request that must be refused."""

    name: str
    route: str
    content: bytes
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How long questions may be: whatever the model, so that prompt and answer fit."""

    prompt_bytes: int
    max_tokens: int

    @classmethod
    def of(cls, max_model_len: int) -> "Sizes":
        """Return sizes for a model of this length, if each byte were a token."""
        return cls(prompt_bytes=min(600, max_model_len // 3), max_tokens=min(32, max_model_len // 4))


def draw_questions(random: Random, count: int, sizes: Sizes) -> list[Question]:
    """Return ``count`` questions, as many of each kind, in random order."""
    kinds = (list(KINDS) * (count // len(KINDS) + 1))[:count]
    questions = [_question(kind, random, sizes) for kind in kinds]
    random.shuffle(questions)
    return questions


def _question(kind: str, random: Random, sizes: Sizes) -> Question:
    fields = KINDS[kind](random)
    text = _text(random, sizes.prompt_bytes)
    asked = {"messages": [{"role": "user", "content": text}]} if kind == "chat" else {"prompt": text}
    body = asked | {"max_tokens": random.randint(1, sizes.max_tokens), "return_token_ids": True} | fields
    return Question(kind=kind, route=CHAT if kind == "chat" else COMPLETIONS, body=body)


def _text(random: Random, most_bytes: int) -> str:
    text = random.choice(OPENINGS)
    wanted = random.randint(8, most_bytes)
    while len(text.encode()) < wanted:
        text += random.choice(WORDS) + " "
    return text.encode()[:wanted].decode(errors="ignore").strip() or "One"


def _greedy(_: Random) -> Body:
    return {"temperature": 0}


def _sampled(random: Random) -> Body:
    fields: Body = {"temperature": round(random.uniform(0.3, 1.3), 2), "seed": random.randrange(2**31)}
    if random.random() < 0.5:
        fields |= {"top_p": round(random.uniform(0.5, 1.0), 2), "top_k": random.choice([5, 40, 200])}
    if random.random() < 0.3:
        fields |= {"repetition_penalty": 1.1, "presence_penalty": 0.3}
    return fields


def _either(random: Random) -> Body:
    return random.choice([_greedy, _sampled])(random)


KINDS: dict[str, Callable[[Random], Body]] = {
    "greedy": _greedy,
    "to the full length": lambda random: _either(random) | {"ignore_eos": True},
    "sampled": _sampled,
    "several outputs": lambda random: _sampled(random) | {"n": random.randint(2, 3)},
    "log-probabilities": lambda random: _greedy(random) | {"logprobs": 3, "echo": random.random() < 0.3},
    "stop strings": lambda random: _either(random) | {"stop": random.sample(STOPS, 3)},
    "guided": lambda random: _either(random) | random.choice(GUIDES),
    "chat": _either,
}
"""Kind -> what its questions ask for."""


def bad_requests(max_model_len: int) -> list[BadRequest]:
    """Return requests that no server may serve, each with the status that it must be refused with."""
    too_long = "word " * (max_model_len * 2)
    bodies: dict[str, Body] = {
        "no prompt": {"max_tokens": 3},
        "empty prompt": {"prompt": ""},
        "prompt too long": {"prompt": too_long},
        "more tokens than fit": {"prompt": "a", "max_tokens": max_model_len + 1},
        "negative temperature": {"prompt": "a", "temperature": -1},
        "a number as text": {"prompt": "a", "max_tokens": "3"},
        "an unknown field": {"prompt": "a", "colour": "red"},
        "no such token": {"prompt": [10**7]},
        "too many outputs": {"prompt": "a", "n": 10**6},
        "a pattern that is none": {"prompt": "a", "guided_regex": "("},
        "a schema that is none": {"prompt": "a", "guided_json": {"type": "objct"}},
        "two guides": {"prompt": "a", "guided_regex": "a", "guided_choice": ["b"]},
    }
    written = {name: json.dumps(body).encode() for name, body in bodies.items()}
    written |= {"no JSON": b"{", "invalid UTF-8": b'{"prompt": "\xff\xfe"}', "a list": b"[1]", "nothing": b""}
    refused = [
        BadRequest(name=name, route=COMPLETIONS, content=content, status=400) for name, content in written.items()
    ]
    return [
        *refused,
        BadRequest(name="no messages", route=CHAT, content=b'{"messages": []}', status=400),
        BadRequest(name="another model", route=COMPLETIONS, content=b'{"model": "gpt-4", "prompt": "a"}', status=404),
        BadRequest(name="no such route", route="/v1/engines", content=b"{}", status=404),
    ]
