"""The server's life: start, serve, drain, end. Owns the socket, the signals and the exit code; knows no route.

========================  =====================================================================  =========
what happens              what follows                                                           exit code
========================  =====================================================================  =========
SIGTERM or SIGINT         no new connections; running requests finish, within the drain timeout  0
the same a second time    the end, at once                                                       1
the engine dies           every request ends with an error; ``/health`` tells of it for a while  1
========================  =====================================================================  =========
"""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
import uvloop

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.engine.engine_client import DEFAULT_FACTORY
from legato.observability.request_spans import check_collector
from legato.server.app import create_app
from legato.server.connection import Connection, ConnectionLimits, Dropped, keep_checking
from legato.server.hosts import RefuseOtherHosts, hosts_of
from legato.server.listener import allowed_connections, bound_socket, listen, url_of
from legato.server.live import Broadcaster
from legato.server.state import ServerState

SIGNALS = (signal.SIGTERM, signal.SIGINT)
KEEP_ALIVE_S = 60
CLOSE_S = 5.0
"""After the drain timeout has ended all requests, how long their last bytes may take to leave."""
LAST_WORDS_S = 0.1
"""How long requests that are open at the very end have to be told of it."""
CHECK_S = 1.0
"""Between two looks at what clients owe, where they may not owe it for less."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger("legato.server")


def serve(options: EngineOptions, server: ServerOptions, *, factory: str = DEFAULT_FACTORY) -> int:
    """Serve until told to end; return the exit code.

    Raises ConfigError for an address that cannot be had and a host's name that is none, and what refused the engine.
    """
    if server.otlp_endpoint is not None:
        check_collector(server.otlp_endpoint)
    logging.basicConfig(level=server.log_level.upper(), format=LOG_FORMAT)
    with bound_socket(server) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        hosts = hosts_of(server, listener.getsockname()[0])
        return runner.run(_Lifecycle(options, server, listener, hosts).run(factory))


class _Lifecycle:
    """One server from start to end."""

    def __init__(
        self, options: EngineOptions, server: ServerOptions, listener: socket.socket, hosts: frozenset[str] | None
    ) -> None:
        self._engine_options = options
        self._options = server
        self._listener = listener
        self._hosts = hosts
        self._signals = 0
        self._told_to_end = asyncio.Event()
        self._http: _Http | None = None

    async def run(self, factory: str) -> int:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        starting = asyncio.ensure_future(AsyncLLM.start(self._engine_options, factory=factory))
        if not await self._before_the_end(starting):
            logger.info("told to end before the engine was ready")
            return 0
        llm = starting.result()
        try:
            return await self._serve(llm)
        finally:
            await llm.shutdown(drain=False)
            await asyncio.sleep(LAST_WORDS_S)

    async def _serve(self, llm: AsyncLLM) -> int:
        app = create_app(llm, self._options)
        if self._hosts is not None:
            app.add_middleware(RefuseOtherHosts, hosts=self._hosts)
        gc.collect()
        gc.freeze()  # a collection between two tokens need not look through all that the server is made of
        state: ServerState = app.state.legato
        http = self._http = _Http(app, self._options, state.metrics.connection_dropped)
        http.should_exit = self._told_to_end.is_set()  # by a signal that came with the engine's last word
        tasks = [
            asyncio.ensure_future(self._watch_engine(llm)),
            asyncio.ensure_future(self._limit_drain(llm, state.live)),
            asyncio.ensure_future(http.keep_checking_clients()),
        ]
        listen(self._listener, self._options)  # from here on clients can connect, so that the log line is true
        logger.info("serving %s at %s", llm.config.served_model_name, url_of(self._listener))
        try:
            await http.serve(sockets=[self._listener])
        finally:
            for task in tasks:
                task.cancel()
        return 1 if llm.errored or http.force_exit else 0

    def _on_signal(self) -> None:
        self._signals += 1
        self._told_to_end.set()
        if self._http is None:
            return
        if self._signals == 1:
            logger.info(
                "draining: running requests have %g s; a second signal ends at once", self._options.drain_timeout_s
            )
            self._http.should_exit = True
        else:
            self._http.force_exit = True

    async def _before_the_end(self, starting: "asyncio.Future[AsyncLLM]") -> bool:
        """Return whether ``starting`` is done before a signal comes; cancel it where it is not."""
        ending = asyncio.ensure_future(self._told_to_end.wait())
        either: set[asyncio.Future[Any]] = {starting, ending}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if starting.done():
            return True
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)  # it may have failed just now: nobody asks any more
        return False

    async def _watch_engine(self, llm: AsyncLLM) -> None:
        await llm.wait_ended()
        if llm.errored and self._http is not None:
            logger.error("%s", llm.error)
            await asyncio.sleep(self._options.dead_engine_grace_s)
            self._http.should_exit = True

    async def _limit_drain(self, llm: AsyncLLM, live: Broadcaster) -> None:
        await self._told_to_end.wait()
        live.close()  # whoever watches would hold the drain up to its end
        await asyncio.sleep(self._options.drain_timeout_s)
        logger.warning("the drain timeout is over; requests that still run end with an error")
        await llm.shutdown(drain=False)


class _Http(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal instead of an exit code."""

    def __init__(self, app: object, options: ServerOptions, on_drop: Callable[[Dropped], None]) -> None:
        self._limits = ConnectionLimits(
            max_connections=allowed_connections(options.max_connections),
            client_timeout_s=options.client_timeout_s,
            body_timeout_s=options.body_timeout_s,
        )
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http=partial(Connection, limits=self._limits, on_drop=on_drop),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=options.log_level,
                access_log=options.access_log,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(options.drain_timeout_s + CLOSE_S),
            )
        )

    async def keep_checking_clients(self) -> None:
        """Drop clients that let the server wait, for ever."""
        every_s = min(CHECK_S, self._limits.client_timeout_s / 4, self._limits.body_timeout_s / 4)
        await keep_checking(self.server_state.connections, every_s=every_s)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
