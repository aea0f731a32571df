"""What cannot be served at all, and the errors that say so. Nothing is truncated to make it fit."""

from legato.config.engine import SchedulerConfig
from legato.errors import RequestError
from legato.flow.request import Request
from legato.kvcache.manager import KVCacheManager


def check_request(request: Request, config: SchedulerConfig, cache: KVCacheManager, *, num_drafts: int = 0) -> None:
    """Raise RequestError where this request could not finish even if it were alone.

    ``num_drafts``: most tokens that are fed behind one that counts.
    """
    _check_lengths(request, config)
    _check_blocks(request, config, cache, num_drafts)


def _check_lengths(request: Request, config: SchedulerConfig) -> None:
    num_prompt_tokens = len(request.prompt_token_ids)
    if num_prompt_tokens == 0:
        raise RequestError("the prompt is empty", {"limit": "at least 1 token"}, param="prompt")
    if request.max_tokens < 1:
        raise RequestError(
            "max_tokens is out of range",
            {"requested": request.max_tokens, "limit": "at least 1"},
            param="max_tokens",
        )
    if num_prompt_tokens >= config.max_model_len:
        raise RequestError(
            "the prompt is too long",
            {
                "requested": f"{num_prompt_tokens} prompt tokens and at least 1 output token",
                "limit": f"--max-model-len {config.max_model_len}, prompt and output together",
                "options": "a shorter prompt | a larger --max-model-len",
            },
            param="prompt",
        )


def _check_blocks(request: Request, config: SchedulerConfig, cache: KVCacheManager, num_drafts: int) -> None:
    longest = min(len(request.prompt_token_ids) + request.max_tokens, config.max_model_len)
    # The last token is only sampled, never fed, so it takes no room.
    num_needed = cache.blocks_needed(longest - 1 + num_drafts)
    if num_needed > cache.pool.num_total:
        raise RequestError(
            "the request does not fit in the KV cache",
            {
                "requested": f"up to {longest} tokens, which need {num_needed} blocks of {cache.block_size} tokens",
                "limit": f"{cache.pool.num_total} blocks in the KV cache",
                "options": "a shorter prompt | a smaller max_tokens | a larger --kv-cache-memory-bytes",
            },
            param="max_tokens",
        )
