"""The names that a server answers to. Owns which they are, and that a request for another one is refused.

A page's own name may be made to lead to this machine once a browser has loaded it (DNS rebinding). The browser then
takes the server for the page's own site, and lets it read every answer. It still asks for that name, in ``Host``.
"""

import re
from collections.abc import Iterable, Set
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from legato.config.server import ServerOptions
from legato.errors import ConfigError
from legato.server.errors import ApiError

LOCAL = ("localhost", "127.0.0.1", "::1")
ANY = "*"
HOW_TO_ALLOW = "--allowed-hosts NAME makes it answer to NAME too, --allowed-hosts '*' to any"
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")
"""A header's value: a name, or an address in brackets; a port."""
_NAME = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?")
_MOST_SHOWN = 100


def hosts_of(options: ServerOptions, address: str) -> frozenset[str] | None:
    """Return the names of a server that is bound to ``address``; None: any will do. Raises ConfigError.

    Where a key is asked for, such a page has none; and whoever binds to every interface offers the server to a network,
    whose names for it nobody here knows. Names that are given count in either case.
    """
    given = _given(options)
    if ANY in given or (not given and (options.api_key is not None or ip_address(address).is_unspecified)):
        return None
    return frozenset(map(_canonical, (*LOCAL, options.host, address, *map(_checked, given))))


def given_hosts(options: ServerOptions) -> frozenset[str]:
    """Return the names that ``--allowed-hosts`` gives one by one, as :func:`includes` takes them."""
    return frozenset(_canonical(name) for name in _given(options) if name != ANY)


def name_and_port(host: str) -> tuple[str, str] | None:
    """Return the name of a ``Host``, in the one way in which names are compared, and its port; None: it is no host."""
    parts = _HOST.fullmatch(host)
    return None if parts is None else (_canonical(parts[1]), (parts[2] or "").removeprefix(":"))


def includes(hosts: Set[str], name: str) -> bool:
    """Return whether ``name`` is one of ``hosts``, or under one that begins with ``*.``."""
    labels = name.split(".")
    above = ("*." + ".".join(labels[first:]) for first in range(1, len(labels)))
    return name in hosts or any(each in hosts for each in above)


class RefuseOtherHosts:
    """Middleware: lets through what asks for one of ``hosts``, and what names no host, as no browser does."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        other = self._other(scope) if scope["type"] == "http" else None
        if other is None:
            await self._app(scope, receive, send)
            return
        message = f"the request asks for the host {other!r}, to which this server does not answer; {HOW_TO_ALLOW}"
        error = ApiError(403, message, code="host_not_allowed")
        await error.response()(scope, receive, send)

    def _other(self, scope: Scope) -> str | None:
        """Return a name that is asked for and is none of the server's."""
        asked = (value.decode("latin-1") for name, value in scope["headers"] if name == b"host")
        return next((host[:_MOST_SHOWN] for host in asked if not self._is_own(host)), None)

    def _is_own(self, host: str) -> bool:
        asked = name_and_port(host)
        return asked is not None and includes(self._hosts, asked[0])


def _given(options: ServerOptions) -> list[str]:
    return [name.strip() for names in options.allowed_hosts for name in names.split(",")]


def _canonical(name: str) -> str:
    """Return the one way in which a name, or an address with or without brackets, is compared."""
    plain = name.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(plain))
    except ValueError:
        return plain


def _checked(name: str) -> str:
    """Return a name that was given as an option; raises ConfigError for one that no request can ask for."""
    try:
        ip_address(_canonical(name))
    except ValueError:
        if _NAME.fullmatch(name) is None:
            details = {
                "requested": f"--allowed-hosts {name}",
                "options": "a name or an address, without a port; *.example.com for all names under it; * for any",
            }
            raise ConfigError("no request asks for such a host", details) from None
    return name
