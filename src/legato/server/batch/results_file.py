"""The results of a batch on disk. Owns that a row is there whole or not at all, whenever the process is killed.

A row is appended and synced before it counts. What a killed process left of a row is cut off at the next
start. A lock keeps two runs from writing to one file.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from legato.errors import ConfigError
from legato.server.batch.lines import BatchRow

_CHUNK_BYTES = 1 << 20


class _Seen(msgspec.Struct, frozen=True):
    """What is read of a row that is there."""

    id: str
    custom_id: str | None


class ResultsFile:
    """An open file of results; raises ConfigError where it cannot be had or is something else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._error("the file of results cannot be written", error.strerror or str(error)) from error
        try:
            self._lock()
            _sync_folder(path.parent)
            self.done = self._rows()
            """Id -> custom id of the rows that are there."""
        except BaseException:
            os.close(self._file)
            raise

    def append(self, row: BatchRow) -> None:
        """Add a row; it is on disk when this returns. Raises ConfigError where it cannot be, and then none of it is."""
        data = memoryview(msgspec.json.encode(row) + b"\n")
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)  # another row behind a part of this one would be lost with it
            raise self._error("a row cannot be written", error.strerror or str(error)) from error
        self.done[row.id] = row.custom_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._error("another run writes to the file of results", "a lock") from error

    def _rows(self) -> dict[str, str | None]:
        """Read the rows, after cutting off a last one without its line end."""
        os.ftruncate(self._file, self._whole_bytes())
        done: dict[str, str | None] = {}
        with self._path.open("rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    row = msgspec.json.decode(text, type=_Seen)
                except msgspec.DecodeError as error:
                    raise self._error("the file is not one of results", f"line {number}: {error}") from error
                done[row.id] = row.custom_id
        return done

    def _whole_bytes(self) -> int:
        """Return the bytes up to the last line end."""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - _CHUNK_BYTES)
            last = os.pread(self._file, end - start, start).rfind(b"\n")
            if last >= 0:
                return start + last + 1
            end = start
        return 0

    def _error(self, summary: str, found: str) -> ConfigError:
        details = {"requested": str(self._path), "found": found, "options": "another file"}
        return ConfigError(summary, details)


def _sync_folder(folder: Path) -> None:
    """Make the file's name outlive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
