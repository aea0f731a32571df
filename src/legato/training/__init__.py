"""Training of draft heads: prompts, the target's answers and inner states, and the head that learns from them."""
