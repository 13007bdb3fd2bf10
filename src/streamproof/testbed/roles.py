"""Who plays a role of a job where this machine does not see its processes: found, killed and seen to be gone by commands of the user's.

    roles:
      workers:
        find: kubectl get pods -l app=my-job -o jsonpath='{range .items[*]}{.metadata.uid} {.metadata.name}{"\\n"}{end}'
        kill: kubectl exec {name} -- kill -9 1
        evidence: my-scripts/pod-is-gone {id}

``find`` prints a line for each who plays the role now, none where there is nobody: an id, and after a blank what the other commands need to
reach it (else the id). What was started anew must have another id: a pod's uid, a container's id with the time of its start, a machine with
a pid. ``kill`` ends that one by force. ``evidence`` exits with 0 once it is gone and with 1 while it is there, and asks somebody else than
``find`` where there is somebody else to ask. Any other exit code is a failure, and its last words are shown.

A command is run without a shell, from the project's folder, with ``{id}``, ``{name}``, ``{run}`` and ``{job}`` filled in.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from streamproof import settings
from streamproof.testbed.process import TestbedError, environment

COMMAND_S = 30.0
TAIL = 300
_PLACEHOLDER = re.compile(r"\{(id|name|run|job)\}")
_OF_ONE = frozenset({"id", "name"})


def _split(command: str) -> str:
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {error}") from None
    if not parts:
        raise ValueError("expected a command, came nothing")
    return command


Command = Annotated[str, AfterValidator(_split)]


class Template(BaseModel):
    """How those who play a role are found, killed and seen to be gone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    find: Command = Field(description="Prints a line for each who plays the role: an id, and after a blank what reaches it")
    kill: Command = Field(description="Ends {id} or {name} by force")
    evidence: Command = Field(description="Exits with 0 once {id} or {name} is gone, with 1 while it is there")

    @model_validator(mode="after")
    def _of_one(self) -> Self:
        if _named(self.find) & _OF_ONE:
            raise ValueError("find: it is about all who play the role, and cannot name {id} or {name}")
        for what in ("kill", "evidence"):
            if not _named(getattr(self, what)) & _OF_ONE:
                raise ValueError(f"{what}: expected {{id}} or {{name}} in it, or it could be about anybody")
        return self

    def check(self, role: str, about: Mapping[str, str]) -> None:
        """Raises TestbedError naming a command that is not there, or a ``find`` that fails. Nothing is broken by asking."""
        for what in ("find", "kill", "evidence"):
            program = shlex.split(getattr(self, what))[0]
            if shutil.which(program, path=environment().get("PATH")) is None and not (settings.project() / program).is_file():
                raise TestbedError(f"roles: {role}: {what}: there is no program {program} here, neither in PATH nor in the project")
        self.found(role, about)

    def found(self, role: str, about: Mapping[str, str]) -> list[dict[str, str]]:
        """Who plays the role now, as a journal keeps it. Raises TestbedError."""
        done = self._run(role, "find", about)
        if done.returncode != 0:
            raise self._failed(role, "find", done)
        lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.strip()]
        return [{"role": role, "id": line[0], "name": line[-1].strip()} for line in lines]

    def kill_one(self, victim: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Raises TestbedError when the command fails."""
        done = self._run(victim["role"], "kill", {**about, "id": victim["id"], "name": victim["name"]})
        if done.returncode != 0:
            raise self._failed(victim["role"], "kill", done)

    def gone(self, victim: Mapping[str, Any], about: Mapping[str, str]) -> bool:
        """Whether that one is gone. Raises TestbedError when the command cannot say."""
        done = self._run(victim["role"], "evidence", {**about, "id": victim["id"], "name": victim["name"]})
        if done.returncode not in (0, 1):
            raise self._failed(victim["role"], "evidence", done)
        return done.returncode == 0

    def _run(self, role: str, what: str, values: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        words = [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in shlex.split(getattr(self, what))]
        if "/" in words[0]:
            words[0] = str(settings.project() / words[0])
        try:
            return subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                cwd=settings.project(),
                env=environment(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"roles: {role}: {what}: {words[0]} did not end within {COMMAND_S:.0f} s") from error
        except OSError as error:
            raise TestbedError(f"roles: {role}: {what}: {words[0]} cannot be run: {error}") from error

    def _failed(self, role: str, what: str, done: subprocess.CompletedProcess[str]) -> TestbedError:
        words = " ".join((done.stderr or done.stdout).split())[-TAIL:] or "nothing"
        return TestbedError(f"roles: {role}: {what}: {done.args[0]} ended with exit code {done.returncode}, its last words: {words}")


def _named(command: str) -> set[str]:
    return set(_PLACEHOLDER.findall(command))
