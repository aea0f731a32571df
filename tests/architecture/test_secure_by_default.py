"""What keeps a server safe without anybody's doing: its address, its key, and what its code never does."""

import ast
import ipaddress
import re
from collections.abc import Iterator

import pytest
from source_tree import TREES, files_that_name, names_read

from legato.config.server import ServerOptions
from legato.server.hosts import hosts_of
from legato.server.listener import bound_socket
from legato.server.openapi import BODIES

PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "send_pyobj", "recv_pyobj"}
"""Modules, and methods of pyzmq's sockets."""
FILES = {"pathlib", "pathlib.Path", "os", "os.path", "io", "tempfile", "shutil", "glob"}
A_PLACE = re.compile(r"path|file|dir|folder|url|host", re.IGNORECASE)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def files_that_call(*names: str) -> set[str]:
    """Return the files that call a builtin of these names."""
    return {
        file
        for file, tree in TREES.items()
        for call in calls(tree)
        if isinstance(call.func, ast.Name) and call.func.id in names
    }


def files_with_argument(name: str) -> set[str]:
    """Return the files that call something with ``name=`` anything but False."""
    return {
        file
        for file, tree in TREES.items()
        for call in calls(tree)
        for keyword in call.keywords
        if keyword.arg == name and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    }


def test_nothing_is_read_that_could_run_code() -> None:
    named = {file: {part for name in names_read(tree) for part in name.split(".")} for file, tree in TREES.items()}
    assert [file for file, parts in named.items() if not parts.isdisjoint(PICKLES)] == []
    assert files_that_name("torch.load", "yaml.load", "yaml.unsafe_load") == set()
    assert files_with_argument("allow_pickle") == set()


def test_no_code_of_a_model_is_run() -> None:
    assert files_with_argument("trust_remote_code") == set()
    assert files_that_call("eval", "exec", "__import__") <= {"device/program.py"}, "the graph that it has recorded"


def test_no_command_goes_through_a_shell() -> None:
    assert files_that_name("os.system", "os.popen", "subprocess.getoutput") == set()
    assert files_with_argument("shell") == set()


def test_a_chat_template_is_run_in_a_sandbox_and_nowhere_else() -> None:
    assert files_that_name("jinja2.Environment", "jinja2.Template", "jinja2.sandbox.SandboxedEnvironment") == set()
    assert files_that_name("jinja2.sandbox.ImmutableSandboxedEnvironment") == {"loading/chat_template.py"}


def test_a_server_listens_to_this_machine_alone_unless_told() -> None:
    with bound_socket(ServerOptions(port=0)) as listener:
        assert ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def test_the_key_is_compared_in_constant_time_and_in_no_other_way() -> None:
    """``==`` ends at the first byte that differs, and so tells how many were right."""
    tree = TREES["server/auth.py"]
    compared = [call for call in calls(tree) if ast.unparse(call.func) == "hmac.compare_digest"]
    assert [[ast.unparse(argument) for argument in call.args] for call in compared] == [["given", "self._expected"]]
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "_expected"]
    assert len([node for node in reads if isinstance(node.ctx, ast.Load)]) == 1
    assert {file for file in files_that_name("options.api_key") if file.startswith("server/")} <= {
        "server/app.py",
        "server/hosts.py",
        "server/openapi.py",
    }


def test_a_server_without_a_key_answers_to_no_name_that_another_can_make_its_own() -> None:
    assert hosts_of(ServerOptions(), "127.0.0.1") == {"localhost", "127.0.0.1", "::1"}


def test_no_other_origin_is_let_in() -> None:
    named = {name.split(".")[-1] for tree in TREES.values() for name in names_read(tree)}
    assert "CORSMiddleware" not in named


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_no_request_names_a_file_or_an_address(body) -> None:
    assert [name for name in body.model_fields if A_PLACE.search(name)] == []


def test_what_answers_requests_opens_no_file() -> None:
    """The page's own files, a profile's folder and batch files are named on the command line."""
    openers = {file for file in files_that_name(*FILES) | files_that_call("open") if file.startswith("server/")}
    told = {"server/profiling.py", "server/batch/lines.py", "server/batch/results_file.py", "server/batch/run.py"}
    assert openers <= told
    loaders = {file for file in files_that_name("legato.loading.source.resolve_model") if file.startswith("server/")}
    assert loaders == set()


def test_every_limit_of_a_server_holds_by_default() -> None:
    options = ServerOptions()
    for name in ("max_body_bytes", "max_connections", "client_timeout_s", "body_timeout_s", "drain_timeout_s"):
        assert 0 < getattr(options, name) < 2**32, name
