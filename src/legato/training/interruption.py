"""Ctrl-C while a head is trained. Owns that no step is broken off by it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a question that can be asked; a second one raises KeyboardInterrupt as ever.

    Only a main thread is told of signals, and a handler that somebody else has set stays: there the answer is no.
    """
    pressed = threading.Event()
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield pressed.is_set
        return

    def note(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, usual)
