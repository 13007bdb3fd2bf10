"""``streamproof record``: writes what a topic holds into a file that an experiment sends again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamproof.cli.terminal import say
from streamproof.errors import BadInput

ENDING = ".parquet"


def record(
    topic: Annotated[str, typer.Argument(help="The topic, of any Kafka.")],
    bootstrap_servers: Annotated[str, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Where that Kafka is reached.")],
    file: Annotated[Path, typer.Option("--to", metavar="FILE", help="A .parquet file, which must not be there.")],
    records: Annotated[int, typer.Option(metavar="N", help="The newest so many records at most.", min=100)] = 20_000,
    properties: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Properties of librdkafka, as security.protocol=SSL, one a line.")
    ] = None,
) -> None:
    """Write the newest records of a topic into a file: keys, values, headers and times. `workload: {file: {path: FILE}}` sends them again.

    Nothing is written to that Kafka, no offset is committed.
    """
    from streamproof.load import recorded, recorder

    if file.suffix != ENDING:
        raise BadInput(f"--to {file}: expected a file whose name ends with {ENDING}")
    if file.exists():
        raise BadInput(f"--to {file} is there already: name another, or remove it")
    if not file.absolute().parent.is_dir():
        raise BadInput(f"--to {file}: there is no folder {file.absolute().parent}")
    found = recorder.record({**_properties(properties), "bootstrap.servers": bootstrap_servers}, topic, records)
    recorded.write(file, found)
    partitions = len({each.partition for each in found})
    say(f"{len(found)} records of {partitions} partitions of {topic} are in {file}")
    say(f"send them again: workload: {{file: {{path: {file}}}, partitions: {max(partitions, 1)}}}")


def _properties(path: Path | None) -> dict[str, str]:
    """Raises BadInput naming the line that is no property."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--properties {path} cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise BadInput(f"--properties {path}: line {number}: expected NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
