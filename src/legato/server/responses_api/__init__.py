"""``POST /v1/responses``: OpenAI's Responses interface over the way that conversations take."""
