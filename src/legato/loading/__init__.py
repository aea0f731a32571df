"""Finding and reading a model: configuration, weights, tokenizer."""
