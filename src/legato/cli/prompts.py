"""What was typed -> prompts. Owns the ways to give one: text, token ids, or a chat message."""

import json
from collections.abc import Sequence

from legato.errors import RequestError

Prompt = str | list[int]
"""Text, or the token ids themselves."""


def typed_prompts(texts: Sequence[str], token_ids_json: str | None) -> list[Prompt]:
    """Return the prompts in the order typed, token ids last. Raises RequestError where there is none."""
    prompts: list[Prompt] = [*texts, *(parse_token_ids(token_ids_json) if token_ids_json is not None else [])]
    if not prompts:
        options = 'legato generate "The capital of France is" | --prompt-token-ids "[504, 3575, 282]"'
        raise RequestError("there is no prompt", {"options": options}, param="prompt")
    return prompts


def parse_token_ids(text: str) -> list[list[int]]:
    """Parse ``[1, 2]`` or, for several prompts, ``[[1, 2], [3]]``. Raises RequestError for anything else."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _not_token_ids(text, f"not JSON: {error}") from None
    prompts = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    for prompt in prompts:
        if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
            raise _not_token_ids(text, f"{json.dumps(prompt)} is not a list of integers")
    return prompts


def chat_messages(question: str, system: str | None) -> list[dict[str, str]]:
    """Return one user message, with the system message before it where there is one."""
    first = [{"role": "system", "content": system}] if system is not None else []
    return [*first, {"role": "user", "content": question}]


def _not_token_ids(text: str, found: str) -> RequestError:
    details = {"requested": f"--prompt-token-ids {text}", "found": found, "options": '"[1, 2, 3]" | "[[1, 2], [3]]"'}
    return RequestError("token ids were expected", details, param="prompt_token_ids")
