"""``legato serve``: the HTTP server with every engine and server option. Owns nothing but the hand-over."""

import typer

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions


def serve(*, server: ServerOptions, engine: EngineOptions) -> None:
    """Serve the model over HTTP, with the interface of OpenAI, until SIGTERM or Ctrl-C.

    Examples:

    - `legato serve`
    - `legato serve --model ./my-model --port 9000 --api-key secret`
    """
    from legato.server import lifecycle

    raise typer.Exit(lifecycle.serve(engine, server))
