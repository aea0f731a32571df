"""Small vocabularies of both kinds, as GGUF metadata."""

import json

import tokenizers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. 12 345 don't won't",
    "  leading spaces\n\n\ttabs and Ünïcödé, 中国的首都是 🍌🍌",
    "def f(x):\n    return x + 1  # noch ein Kommentar",
]


def byte_level_metadata(pre: str, **changes: object) -> dict[str, object]:
    """A byte-level BPE vocabulary of 400 tokens and three special ones, trained on the corpus."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(CORPUS * 3, trainer)
    vocab = trained.get_vocab()
    merges = [f"{left} {right}" for left, right in json.loads(trained.to_str())["model"]["merges"]]
    tokens = [*sorted(vocab, key=vocab.__getitem__), "<|start|>", "<|end|>", "<user defined>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 3) + [3, 3, 4],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens) - 3,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        **changes,
    }


def sentencepiece_metadata(**changes: object) -> dict[str, object]:
    """A SentencePiece BPE vocabulary: specials, 256 byte tokens, then pieces with falling scores."""
    pieces = [
        "▁t",
        "he",
        "▁the",
        "in",
        "er",
        "▁a",
        "▁in",
        "on",
        "re",
        "ter",
        "▁re",
        "the",
        "ont",
        "▁▁",
        "ert",
        "▁there",
    ]
    characters = ["▁", *"abcdehinorst", "é", "中"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *characters]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) + len(characters))]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces) + len(characters))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }
