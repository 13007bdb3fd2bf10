"""How files of a run's folder are written and read: whole files are replaced atomically, lines are appended one write each.

A reader, or a stage that is repeated after a crash, never sees half of a file. Of a file of lines it may see the last one torn: a line
counts once its end is written.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
_CANCELLED = b"\x18\n"  # ends a line that its writer could not finish; JSON holds no control character as it is


class EvidenceError(Exception):
    """Evidence that should be in a run's folder is missing or cannot be read. The message names the file."""


def utc_now() -> str:
    """The time as an ISO 8601 stamp in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def milliseconds(stamp: str) -> int:
    """A moment in ms since the epoch."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` with ``text``: readers see the old content or the new, also when the machine stops in between.

    With ``mode`` 0o600 it is at no moment readable by anybody but its owner.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def append_json_line(path: Path, fields: dict[str, Any], *, durable: bool = False) -> None:
    """Append an object as one line, in one ``write``; with ``durable`` it is on the disk when this returns.

    A rest that a killed writer left without its end is cancelled first, so that it does not swallow this line.
    """
    line = (json.dumps(fields, separators=(",", ":"), default=str) + "\n").encode()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        # Another's line may be half written at this moment: it is whole before this one is written, and then nothing is cancelled.
        whole = _CANCELLED + line if torn else line
        if os.write(descriptor, whole) != len(whole):
            raise OSError(f"{path}: a line could be written in part only; is the disk full?")
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file.

    A last line without its end (its writer was killed, or is writing) is left out, and so is one that was cancelled later. Raises
    EvidenceError naming the file when a line is something else than an object.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            if line.endswith(_CANCELLED):
                continue
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise EvidenceError(f"{path}: a line is not JSON ({error})") from error
            if not isinstance(fields, dict):
                raise EvidenceError(f"{path}: a line is not JSON of an object, but of {type(fields).__name__}")
            yield fields
