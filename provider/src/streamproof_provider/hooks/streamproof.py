"""The connection to a streamproof that is installed beside Airflow, and the commands that it runs.

A command runs in streamproof's own virtual environment: nothing of Airflow's packages, settings or secrets reaches it. It ends when the
task ends it, and also when the task's process is gone: the command holds the other end of a pipe, and stops when that is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException

LOOK_S = 1.0
END_S = 120.0  # how long a run may take to restore the testbed; when it is killed then, its watchdog restores
TEST_S = 60.0
KEPT_LINES = 20
STATE_FOLDER = ".streamproof"
_OF_AIRFLOW = re.compile(r"_*AIRFLOW|PYTHONPATH$|PYTHONHOME$|VIRTUAL_ENV")


@dataclass(frozen=True)
class Installation:
    """Where streamproof is, and what it works on: what a connection says."""

    program: Path
    project: Path
    state_folder: Path
    cache_folder: Path | None
    state_url: str | None

    def environment(self) -> dict[str, str]:
        """This process's environment, without what is Airflow's own."""
        inherited = {name: value for name, value in os.environ.items() if not _OF_AIRFLOW.match(name)}
        folders = {"STREAMPROOF_PROJECT": self.project, "STREAMPROOF_HOME": self.state_folder, "STREAMPROOF_CACHE": self.cache_folder}
        path = f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**inherited, "PATH": path, **{name: str(folder) for name, folder in folders.items() if folder is not None}}


@dataclass(frozen=True)
class Done:
    """How a command ended. ``document`` is the JSON that it printed, if any; ``lines`` are the last ones that it wrote for a reader."""

    code: int
    document: dict[str, Any] | None
    lines: tuple[str, ...]

    @property
    def error(self) -> str:
        """What the command says went wrong; without such a line, the last ones that there are."""
        named = [line.removeprefix("error: ") for line in self.lines if line.startswith("error: ")]
        return named[-1] if named else "\n".join([f"streamproof ended with exit code {self.code}", *self.lines[-5:]])


class StreamproofHook(BaseHook):
    """Calls streamproof's command line where the connection says that it is installed.

    :param streamproof_conn_id: a connection of the type *streamproof*. Its ``extra`` holds ``virtual_environment`` and ``project``, and
        optionally ``state_folder``, ``cache_folder`` and ``state_url``.
    """

    conn_name_attr = "streamproof_conn_id"
    default_conn_name = "streamproof_default"
    conn_type = "streamproof"
    hook_name = "streamproof"

    def __init__(self, streamproof_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.streamproof_conn_id = streamproof_conn_id

    @cached_property
    def installation(self) -> Installation:
        """What the connection says. Raises AirflowFailException naming the field that is missing or wrong."""
        extra = self._extra()
        environment, project = self._folder(extra, "virtual_environment"), self._folder(extra, "project")
        program = environment / "bin" / "streamproof"
        if not os.access(program, os.X_OK):
            raise self._wrong("virtual_environment", f"there is no program {program}", "install it there: pip install 'streamproof[run]'")
        state_folder, cache_folder = extra.get("state_folder"), extra.get("cache_folder")
        return Installation(
            program,
            project,
            Path(state_folder) if state_folder else project / STATE_FOLDER,
            Path(cache_folder) if cache_folder else None,
            (extra.get("state_url") or "").rstrip("/") or None,
        )

    @property
    def state_folder(self) -> Path:
        """The state folder alone, for the API server: it needs no program."""
        extra = self._extra()
        return Path(extra.get("state_folder") or Path(extra.get("project") or "/") / STATE_FOLDER)

    def start(self, *words: str) -> Command:
        """Start a command that knows ``--attended`` and ``--json``."""
        return Command([str(self.installation.program), *words, "--attended", "--json"], self.installation, self.log.info)

    def test_connection(self) -> tuple[bool, str]:
        """Ask streamproof for the state of its testbed."""
        try:
            found = self.installation
            command = [str(found.program), "testbed", "status", "--json"]
            env = found.environment()
            done = subprocess.run(command, cwd=found.project, env=env, capture_output=True, text=True, timeout=TEST_S, check=False)
            states = json.loads(done.stdout)
        except AirflowFailException as error:
            return False, str(error)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return False, f"streamproof does not answer: {error}"
        listed = ", ".join(f"{name} {state}" for name, state in states.items())
        return True, f"streamproof answers; its testbed: {listed or 'not started'}"

    def _extra(self) -> dict[str, Any]:
        return dict(self.get_connection(self.streamproof_conn_id).extra_dejson)

    def _folder(self, extra: dict[str, Any], field: str) -> Path:
        value = extra.get(field)
        if not value:
            raise self._wrong(field, "expected the path of a folder on the worker, came nothing", "fill it in")
        path = Path(value)
        if not path.is_absolute() or not path.is_dir():
            raise self._wrong(field, f"expected the absolute path of a folder on the worker, came {value!r}", "mend it")
        return path

    def _wrong(self, field: str, what: str, mend: str) -> AirflowFailException:
        return AirflowFailException(f"connection {self.streamproof_conn_id!r}, {field}: {what}; {mend}")


class Command:
    """A command of streamproof's that is running. Its lines are passed to ``say``."""

    def __init__(self, words: list[str], installation: Installation, say: Callable[[str], None]) -> None:
        self._say, self._lines, self._document = say, deque[str](maxlen=KEPT_LINES), ""
        self._stop_at: float | None = None
        self._process = subprocess.Popen(
            words,
            cwd=installation.project,
            env=installation.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[str] = self._process.stdin
        self._readers = [
            threading.Thread(target=self._read_document, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_lines, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Have the command end its run and restore the testbed. Returns at once; repeating it is fine."""
        if self._stop_at is None:
            self._stop_at = time.monotonic()
            with contextlib.suppress(OSError):
                self._stdin.close()

    def wait(self) -> Done:
        """Wait for the command's end. One that takes longer than ``END_S`` to stop is killed; the run's watchdog restores then."""
        while self._running():
            if self._stop_at is not None and time.monotonic() - self._stop_at > END_S:
                self._process.kill()
        for reader in self._readers:
            reader.join(LOOK_S)  # what the command started may hold its ends of the pipes for longer
        return Done(self._process.returncode, _parsed(self._document), tuple(self._lines))

    def _running(self) -> bool:
        try:
            self._process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _read_document(self, stream: IO[str]) -> None:
        self._document = stream.read()

    def _read_lines(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.append(line.rstrip())
            self._say(line.rstrip())


@contextlib.contextmanager
def ended(command: Command) -> Iterator[Command]:
    """Whatever ends the body (a timeout, Ctrl-C) ends the command, and waits for its end."""
    try:
        yield command
    except BaseException:  # whatever it was: the command must not stay, and it is raised again
        command.stop()
        command.wait()
        raise


def _parsed(text: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None
