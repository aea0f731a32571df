"""What the user may ask of the HTTP server. Owns the option names, defaults and help; decides nothing."""

from dataclasses import dataclass

from legato.config.options import option

SERVER = "Server"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Server options as typed."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.", panel=SERVER)
    port: int = option(8000, "Port to listen on; 0: any free one.", panel=SERVER)
    api_key: str | None = option(
        None,
        "Key that requests must bring as 'Authorization: Bearer KEY'; open without it: /health, the live page's files.",
        panel=SERVER,
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        "Names, besides its own, by which requests may ask for the server in 'Host'; separated by commas, or given "
        "again. *.example.com: all under it; *: any, as without this option where there is a key or --host is 0.0.0.0.",
        metavar="NAMES",
        panel=SERVER,
    )
    ui: bool = option(True, "Serve the live page at /ui.", panel=SERVER)
    tool_call_parser: str = option(
        "auto",
        "How the model writes tool calls; auto: as its chat template tells.",
        choices=("auto", "llama3", "hermes", "none"),
        panel=SERVER,
    )
    reasoning_parser: str = option(
        "auto",
        "How the model marks its reasoning; auto: as its chat template tells.",
        choices=("auto", "think", "none"),
        panel=SERVER,
    )
    profile_dir: str | None = option(
        None,
        "Folder for profiles of the engine, which POST /start_profile and /stop_profile then record.",
        metavar="DIR",
        panel=SERVER,
    )
    otlp_endpoint: str | None = option(
        None,
        "OpenTelemetry collector, over HTTP, that is told of every request; needs 'legato[otel]'.",
        metavar="URL",
        panel=SERVER,
    )
    max_body_bytes: int = option(16 * 1024 * 1024, "Largest request body.", panel=SERVER)
    max_connections: int = option(4096, "Connections at once; more are refused.", panel=SERVER)
    client_timeout_s: float = option(
        30.0,
        "Seconds that a client has for a request's head, for the next part of its body, and to read any of an answer "
        "that waits to be read.",
        panel=SERVER,
    )
    body_timeout_s: float = option(
        300.0, "Seconds that a client has for a request's whole body, however steadily it comes.", panel=SERVER
    )
    drain_timeout_s: float = option(30.0, "Seconds that running requests have to finish after SIGTERM.", panel=SERVER)
    dead_engine_grace_s: float = option(
        3.0, "Seconds in which /health tells of a dead engine before the server exits.", panel=SERVER
    )
    log_level: str = option(
        "info", "Least severe log lines that are written.", choices=("debug", "info", "warning", "error"), panel=SERVER
    )
    access_log: bool = option(True, "Write one log line per HTTP request.", panel=SERVER)
