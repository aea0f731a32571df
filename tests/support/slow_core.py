"""An engine core that takes for ever to build."""

import sys
import time


def build(options: object, console: object = None) -> None:
    print("building slowly", file=sys.stderr, flush=True)
    time.sleep(600)
