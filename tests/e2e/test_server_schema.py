"""schemathesis asks a server all that its own description allows and forbids: every answer is one that it describes."""

import re
import subprocess
import sys

from server_process import KEY, REAL, running_server

from legato.config.options import EngineOptions

SECONDS = 10
HANG_S = 20
# Numbers have ranges that depend on the model, and that a description of types cannot tell.
NOT_CHECKED = "positive_data_acceptance"


def test_every_answer_is_as_described(tiny_model, tmp_path, request):
    seconds = request.config.getoption("--fuzz-seconds")
    options = EngineOptions(model=str(tiny_model), served_model_name="tiny", device="cpu", enforce_eager=True)
    with running_server(options, factory=REAL, api_key=KEY, access_log=False) as server:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {KEY}", "--request-timeout", str(HANG_S)]
        command += ["--checks", "all", "--exclude-checks", NOT_CHECKED, "--continue-on-failure", "--no-color"]
        command += ["--max-time", str(seconds or SECONDS)]
        command += [] if seconds else ["--seed", "1", "--generation-database", "none"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert server.process.poll() is None
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tested = re.search(r"Tested: (\d+)", ended.stdout)
    assert tested is not None and int(tested[1]) > 10, ended.stdout
