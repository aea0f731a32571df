import sys
from pathlib import Path

# The deterministic core and the tiny model are shared with the tests of the whole server.
sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))
