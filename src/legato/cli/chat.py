"""``legato chat``: a conversation in the terminal. Owns its history and its commands."""
