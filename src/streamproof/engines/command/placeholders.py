"""The placeholders of a job's command line and variables: what a start of it can be told."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamproof.errors import BadInput

Variable = Annotated[str, Field(pattern=r"^[a-z_]+$")]
"""A placeholder of a job's own."""

PLACEHOLDERS = {
    "python": "the job's interpreter, else the Python that runs streamproof",
    "bootstrap_servers": "Kafka, behind the proxies that faults break",
    "security_protocol": "how it is reached: PLAINTEXT, and SSL or SASL_SSL for a [secured one](clusters.md#a-job-of-your-own)",
    "sasl_mechanism": "how a secured Kafka is logged in to, as SCRAM-SHA-512; empty without a login",
    "ssl_ca": "a file with the certificates of the authorities that its certificates come from; empty in plaintext",
    "ssl_certificate": "a file with the client's own certificate, where it has one",
    "ssl_key": "a file with the key of that",
    "kafka_properties": "a file with the properties of a Java client of a secured Kafka, its login too; empty in plaintext",
    "input_topic": "what it reads",
    "output_topic": "where it delivers, if that is a topic",
    "group": "the consumer group whose committed offsets are its progress, if it has no other",
    "job": "its own name in this run: transactional ids should begin with it and a dot",
    "state_folder": "a folder of its own that outlives its starts",
    "checkpoint": "a folder below it for Spark's checkpoint",
    "output_folder": "where it delivers, if that is a folder of files or a Delta table; the warehouse of an Iceberg table",
    "start": "the number of this start, from 1",
    "batch_records": "how many records it should commit at once at most",
    "transaction_timeout_ms": "how long a transaction may stay open",
    "jdbc_url": "PostgreSQL behind its proxy, with user and schema; the password is in the file that PGPASSFILE names",
    "postgres": "the same as a connection string of libpq",
    "schema": "the run's own schema in PostgreSQL, which is the search path of both",
    "table": "the table that it delivers to, if it delivers to one",
    "spark_master": "the testbed's Spark master",
    "spark_properties": "a properties file with the secret of the testbed's Spark, for spark-submit --properties-file",
    "spark_jars": "jars of Spark's Kafka source, streamproof-kafka and PostgreSQL's driver, and of Delta or Iceberg for a job that "
    "delivers there, separated by commas, for spark-submit --jars",
}
"""Each is an environment variable too: ``STREAMPROOF_`` and its name in capitals."""
SECRETS = {
    "sasl_username": "the user name of a secured Kafka",
    "sasl_password": "its password",
}
"""The same, in the values of ``env`` only: everybody on the machine can read a command line."""
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[a-z_]+)\}\}|\{(?P<name>[a-z_]+)\}")


def unknown(text: str, more: Container[str] = ()) -> str | None:
    """A placeholder in the text that there is not; None when all are known, or among ``more``. ``{{name}}`` is the text ``{name}``."""
    names = (name for match in _PLACEHOLDER.finditer(text) if (name := match["name"]))
    return next((name for name in names if name not in PLACEHOLDERS and name not in more), None)


def only_placeholder(text: str) -> bool:
    """Whether the text is one placeholder and nothing else."""
    return (match := _PLACEHOLDER.fullmatch(text)) is not None and match["name"] is not None


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders filled in."""
    return _PLACEHOLDER.sub(lambda match: values[match["name"]] if match["name"] else f"{{{match['literal']}}}", text)


def check_own(variables: Collection[str]) -> None:
    """Raises ValueError naming a placeholder of a job's own that every job has."""
    if known := sorted(PLACEHOLDERS.keys() & set(variables)):
        raise ValueError(f"variables: {known[0]} is a placeholder that every job has; take another name")


def template(path: Path, what: str, variables: Collection[str] = ()) -> str:
    """The text of a file that has placeholders, those of ``variables`` too; ``what`` is its key in `job`. Raises BadInput when it cannot be
    read, or has one that there is not."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"job: {what} cannot be read: {error}") from error
    if (name := unknown(text, variables)) is not None:
        raise BadInput(f"job: {what}: {path}: there is no placeholder {{{name}}}; there are: {', '.join([*PLACEHOLDERS, *variables])}")
    return text
