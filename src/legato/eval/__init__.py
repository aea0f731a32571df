"""Accuracy: questions with known answers, asked in this process under every graph policy, or asked of a server."""
