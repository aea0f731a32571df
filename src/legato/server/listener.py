"""The socket that clients connect to. Owns its address, its options, and how many connections the system allows."""

import logging
import resource
import socket

from legato.config.server import ServerOptions
from legato.errors import ConfigError

BACKLOG = 2048
SEND_BUFFER_BYTES = 256 * 1024
"""What the system holds for one client that does not read: of its own accord it would be megabytes."""
OTHER_FILES = 256
"""File descriptors for everything that is no client's connection."""
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 60, 10, 3
"""When a silent client is asked whether it is still there, and after how many unanswered questions it is not."""

logger = logging.getLogger("legato.server")


def bound_socket(options: ServerOptions) -> socket.socket:
    """Return a bound socket, so that a taken port is known before a model is loaded; raises ConfigError."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # as accepted sockets have it too
    _notice_vanished_clients(listener)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        raise _address_error(options, error) from error
    return listener


def listen(listener: socket.socket, options: ServerOptions) -> None:
    """Let clients connect; raises ConfigError where another process has come before."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _address_error(options, error) from error


def url_of(listener: socket.socket) -> str:
    """Return the address as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def allowed_connections(wanted: int) -> int:
    """Return ``wanted``, or how many connections the system has file descriptors for; asks it for more first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            allowed = max(1, soft - OTHER_FILES)
            logger.warning("%d connections at most, not %d: the system allows %d open files", allowed, wanted, soft)
            return allowed
    return wanted


def _notice_vanished_clients(listener: socket.socket) -> None:
    """Have the system end connections whose other end is gone without a word."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
    ):
        if hasattr(socket, name):  # not every system has them all
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _address_error(options: ServerOptions, error: OSError) -> ConfigError:
    details = {"requested": f"--host {options.host} --port {options.port}", "found": error.strerror or error}
    return ConfigError("the server's address cannot be had", details)
