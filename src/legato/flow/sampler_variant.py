"""Which sampler a request needs at a point of its output. Pure: the plan asks it and it knows no tensor."""

from legato.flow.sampling_params import SamplingParams
from legato.graphs.modes import SamplerVariant


def variant_of(params: SamplingParams, num_output_tokens: int) -> SamplerVariant:
    """Return the smallest variant that serves ``params`` after ``num_output_tokens`` generated tokens.

    ``min_tokens`` asks for GENERAL only until it is reached, and where a token may end the output at all. Filters do
    not change the best token, so that a greedy request never needs them.
    """
    may_end = not params.ignore_eos or bool(params.stop_token_ids)
    if _changes_logits(params) or (may_end and num_output_tokens < params.min_tokens):
        return SamplerVariant.GENERAL
    if params.greedy:
        return SamplerVariant.GREEDY
    if params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0:
        return SamplerVariant.FILTERED
    return SamplerVariant.TEMPERATURE


def has_penalties(params: SamplingParams) -> bool:
    """Return whether the logits depend on which tokens came before."""
    return params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0


def _changes_logits(params: SamplingParams) -> bool:
    return (
        has_penalties(params)
        or bool(params.logit_bias)
        or params.allowed_token_ids is not None
        or bool(params.bad_words_token_ids)
    )
