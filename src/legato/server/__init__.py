"""The HTTP server, with the interface of OpenAI: :func:`serve` runs it, :func:`create_app` is its application."""

from legato.server.app import create_app
from legato.server.lifecycle import serve

__all__ = ["create_app", "serve"]
