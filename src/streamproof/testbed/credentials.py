"""Where the credentials of a server that runs elsewhere are: in variables, in a file, or in a connection of Airflow.

An experiment names one of these places, and never holds a secret: so none is in a run's folder. A run reads the place once, as it is
prepared, and keeps the login in a folder beside the runs (``secrets``) that only its owner can enter, until it has given the testbed back.
From there its processes read it, those on Spark's workers too: it is in no command line, no configuration of Spark and no plan.

    environment: {username: KAFKA_USER, password: KAFKA_PASSWORD}    variables of the process that runs the experiment
    file: /etc/streamproof/kafka.yaml                                a mapping with username and password, which only its owner can read
    airflow: kafka_of_the_platform                                   login and password of this connection
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from streamproof import settings
from streamproof.testbed.process import TestbedError

_NAME_OF_A_SECRET = re.compile(r"(pass(word|wd|phrase)?|secret|token|jaas([._]?config)?|private_?key)$", re.IGNORECASE)
_SECRET = re.compile(r"PRIVATE KEY-----|\bpass(word|wd)?\s*=|://[^/\s:@]+:[^/\s@]+@", re.IGNORECASE)
_NAMES = ("username", "password")


def _variable(name: str) -> str:
    # Its value is not shown: it may be what should not stand here.
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        raise ValueError("expected the name of a variable, in capitals as KAFKA_PASSWORD; what came is none, and is not shown")
    return name


Variable = Annotated[str, AfterValidator(_variable)]


class Variables(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    username: Variable
    password: Variable


class Credentials(BaseModel):
    """One of the three places."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    environment: Variables | None = Field(None, description="The names of two variables, as {username: …, password: …}")
    file: str | None = Field(None, min_length=1, description="A file that only its owner can read, from the project's folder")
    airflow: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]{1,200}$", description="The id of a connection of Airflow")

    @model_validator(mode="after")
    def _one(self) -> Self:
        named = [name for name in ("environment", "file", "airflow") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"expected one of environment, file and airflow, came {' and '.join(named) or 'none of them'}")
        return self

    def login(self, server: str, environment: Mapping[str, str]) -> Login:
        """User name and password. Raises TestbedError saying what is missing, and never what is there."""
        if self.environment is not None:
            names = [self.environment.username, self.environment.password]
            missing = [name for name in names if not environment.get(name)]
            if missing:
                raise TestbedError(
                    f"the credentials of {server}: expected the variable{'s' if len(missing) > 1 else ''} {' and '.join(missing)} in the "
                    "environment, came nothing. Set it in the shell, or in the environment of Airflow's worker"
                )
            return Login(*(environment[name] for name in names))
        if self.file is not None:
            return _of_mapping(server, self.file, _mapping(server, self.file))
        assert self.airflow is not None, "validated"
        return _of_airflow(server, self.airflow)


@dataclass(frozen=True)
class Login:
    """Never shown: neither as it is nor in a traceback."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


def _mapping(server: str, file: str) -> Any:
    path = owners_only(file, f"the credentials of {server}")
    try:
        return yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError, ValueError):  # what they say shows a part of the file
        raise TestbedError(f"the credentials of {server}: {path} is not YAML, expected a mapping with username and password") from None


def _of_mapping(server: str, file: str, data: Any) -> Login:
    values = [value for name in _NAMES if isinstance(value := data.get(name), str) and value] if isinstance(data, dict) else []
    if len(values) != len(_NAMES):
        raise TestbedError(
            f"the credentials of {server}: {file}: expected a mapping with username and password, both texts (a number in quotes); what "
            "came is not shown"
        )
    return Login(*values)


def _of_airflow(server: str, connection_id: str) -> Login:
    try:
        from airflow.sdk.bases.hook import BaseHook
        from airflow.sdk.exceptions import AirflowException
    except ImportError as error:
        raise TestbedError(
            f"the credentials of {server}: the connection {connection_id} is one of Airflow, which is not installed here ({error.name}). "
            "Run the experiment in Airflow, or name `environment` or `file`"
        ) from error
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowException as error:
        raise TestbedError(f"the credentials of {server}: Airflow has no connection {connection_id}: {type(error).__name__}") from None
    if not connection.login or not connection.password:
        raise TestbedError(f"the credentials of {server}: Airflow's connection {connection_id} has no login, or no password: set both")
    return Login(str(connection.login), str(connection.password))


def at(file: str) -> Path:
    """Where a file is that a description names: from the project's folder."""
    return (settings.project() / Path(file).expanduser()).resolve()


def owners_only(file: str, what: str) -> Path:
    """The path of a file that nobody but its owner can read. Raises TestbedError for another, and for one that is not there."""
    path = at(file)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise TestbedError(f"{what}: {path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise TestbedError(f"{what}: {path} is no file")
    if mode & 0o077:
        raise TestbedError(
            f"{what}: others can read {path} (its mode is {stat.S_IMODE(mode):o}), expected a file that only its owner can read: "
            f"chmod 600 {path}"
        )
    return path


def readable(file: str, what: str) -> Path:
    """The path of a file that holds no secret. Raises TestbedError for one that is not there."""
    path = at(file)
    try:
        path.read_bytes()
    except OSError as error:
        raise TestbedError(f"{what}: {path} cannot be read: {error.strerror}") from error
    return path


def names_a_secret(name: str) -> bool:
    """Whether a field or a variable of this name holds a secret, by its name."""
    return _NAME_OF_A_SECRET.search(name) is not None


def refuse_secrets(described: Any, where: str) -> None:
    """Raises ValueError naming where a description holds a secret, and not which."""
    for place in _secrets(described, ()):
        raise ValueError(
            f"{'.'.join((where, *place))} holds a secret, which would be kept in every run's folder. Name where it is instead: "
            "`credentials: {environment: …}`, `{file: …}` or `{airflow: …}`"
        )


def _secrets(described: Any, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(described, Mapping):
        for name, value in described.items():
            named = names_a_secret(str(name)) and place[-1:] != ("environment",) and value is not None
            if named and not isinstance(value, Mapping | list):
                yield (*place, str(name))
            else:
                yield from _secrets(value, (*place, str(name)))
    elif isinstance(described, list):
        for value in described:
            yield from _secrets(value, place)
    elif isinstance(described, str) and _SECRET.search(described):
        yield place


# --- what a run keeps -----------------------------------------------------------------------------------------------------------------


def folder_of(run: str) -> Path:
    """Where a run keeps its logins."""
    return settings.home() / "secrets" / run


def keep(folder: Path, name: str, text: str) -> None:
    """Write a file there that only its owner can read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    written = folder / f".{name}.{os.getpid()}"
    written.unlink(missing_ok=True)
    written.touch(mode=0o600, exist_ok=False)
    written.write_text(text)
    written.replace(folder / name)


def forget(run: str) -> None:
    """Delete what a run keeps. May be repeated."""
    shutil.rmtree(folder_of(run), ignore_errors=True)
