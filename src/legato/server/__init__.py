"""The HTTP interface: OpenAI's routes, errors in OpenAI's shape, metrics and debug routes."""
