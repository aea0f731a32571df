"""Load on a server with OpenAI's interface, and what its clients see."""
