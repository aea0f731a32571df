"""A GGUF file's vocabulary -> a ``tokenizers`` pipeline. Owns what each ``tokenizer.ggml.pre`` means.

Byte-level BPE (``gpt2``) is rebuilt from its merges. A SentencePiece vocabulary (``llama``) holds no merges but scores:
the best-scored pair of adjacent pieces is merged first (arXiv 1808.06226, section 3.1), which is BPE with every way to
split each piece as a merge, in the order of the scores.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from legato.errors import UnsupportedModelError
from legato.loading.config_fields import Fields, lie

# tokenizer.ggml.token_type; 6 is a byte.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The same, but that digits stand alone.
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def build_gguf_tokenizer(path: Path, metadata: dict[str, Any]) -> Tokenizer:
    """Return the pipeline that ``metadata`` describe. Raises UnsupportedModelError for a kind that is not known."""
    fields = Fields(metadata, str(path))
    kind = fields.text("tokenizer.ggml.model")
    tokens = _list(fields, "tokenizer.ggml.tokens")
    types = _list(fields, "tokenizer.ggml.token_type", default=[_NORMAL] * len(tokens), length=len(tokens))
    if kind == "gpt2":
        tokenizer = _byte_level_bpe(fields, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece_bpe(fields, tokens, types)
    else:
        raise _unknown(fields, "tokenizer.ggml.model", kind, "gpt2, llama")
    _add_special_tokens(tokenizer, tokens, types)
    _frame_with_special_tokens(tokenizer, fields, tokens, default_bos=kind == "llama")
    return tokenizer


def _byte_level_bpe(fields: Fields, tokens: list[str]) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in _list(fields, "tokenizer.ggml.merges")]
    pre = fields.text("tokenizer.ggml.pre", "default")
    splits: dict[str, list[pre_tokenizers.PreTokenizer]] = {
        # GPT-2's own pattern is the one that the byte-level step brings.
        "default": [],
        "gpt-2": [],
        "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "llama-bpe": [pre_tokenizers.Split(Regex(_LLAMA3_WORDS), "isolated")],
        "qwen2": [pre_tokenizers.Split(Regex(_QWEN2_WORDS), "isolated")],
    }
    if pre not in splits:
        raise _unknown(fields, "tokenizer.ggml.pre", pre, ", ".join(splits))
    own_words = pre in ("llama-bpe", "qwen2")
    vocab = _vocab(fields, tokens)
    try:
        # Llama 3 takes a word that is a token as it is, though merges may not lead there.
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # tokenizers raises bare Exception for merges that do not fit the vocabulary.
        raise lie(fields.file, "tokenizer.ggml.merges", "pairs of tokens that make a token", error) from error
    tokenizer = Tokenizer(model)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits[pre], pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not own_words)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece_bpe(fields: Fields, tokens: list[str], types: list[int]) -> Tokenizer:
    scores = _list(fields, "tokenizer.ggml.scores", length=len(tokens))
    unknown = fields.integer("tokenizer.ggml.unknown_token_id", 0, minimum=0)
    model = models.BPE(
        vocab=_vocab(fields, tokens),
        merges=_merges_by_score(tokens, types, scores),
        unk_token=tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    strip: list[decoders.Decoder] = []
    if fields.flag("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        strip = [decoders.Strip(" ", 1, 0)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_by_score(tokens: list[str], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    rank = {
        token: (-score, token_id)
        for token_id, (token, type_, score) in enumerate(zip(tokens, types, scores, strict=True))
        if type_ in (_NORMAL, _USER_DEFINED, _UNUSED)
    }
    merges = []
    for token, order in rank.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in rank and right in rank:
                merges.append((order, rank[left][1], rank[right][1], left, right))
    merges.sort()
    return [(left, right) for *_, left, right in merges]


def _add_special_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> None:
    added = [
        AddedToken(token, special=type_ in (_CONTROL, _UNKNOWN), normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (_CONTROL, _USER_DEFINED, _UNKNOWN)
    ]
    tokenizer.add_tokens(added)


def _frame_with_special_tokens(tokenizer: Tokenizer, fields: Fields, tokens: list[str], *, default_bos: bool) -> None:
    frame = {}
    for kind, default in (("bos", default_bos), ("eos", False)):
        ids = fields.token_ids(f"tokenizer.ggml.{kind}_token_id", len(tokens))
        if ids and fields.flag(f"tokenizer.ggml.add_{kind}_token", default):
            frame[kind] = (tokens[ids[0]], ids[0])
    if frame:
        before = [frame["bos"][0]] if "bos" in frame else []
        after = [frame["eos"][0]] if "eos" in frame else []
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=list(frame.values())
        )


def _vocab(fields: Fields, tokens: list[str]) -> dict[str, int]:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise lie(fields.file, "tokenizer.ggml.tokens", "each token once", f"{len(tokens) - len(vocab)} repeated")
    return vocab


def _list(fields: Fields, name: str, *, default: list[Any] | None = None, length: int | None = None) -> list[Any]:
    values = fields.values.get(name, default)
    if not isinstance(values, list) or (length is not None and len(values) != length):
        expected = "a list" if length is None else f"a list of {length}"
        raise lie(fields.file, name, expected, "nothing" if values is None else f"{len(values)} values")
    return values


def _unknown(fields: Fields, field: str, found: str, options: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "this model's tokenizer is not supported",
        {"file": fields.file, "field": field, "found": found, "options": options},
    )
