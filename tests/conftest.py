"""What all tests share: the support modules, importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
