"""Proof that graphs give what eager steps give: every policy, every captured key, for the user's model and flags."""
