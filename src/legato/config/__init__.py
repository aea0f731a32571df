"""Configuration: declared once in frozen dataclasses, resolved once. Knows nothing of torch."""
