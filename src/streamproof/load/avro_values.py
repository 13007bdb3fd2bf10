"""Rows as Avro: the binary form alone, without the schema and without a header before it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamproof import extras

_REFUSALS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError)


class DoesNotFit(Exception):
    """A row is not what the schema describes, or the schema cannot be read."""


def writer(schema_file: Path) -> Callable[[dict[str, Any]], bytes]:
    """What writes a row by the schema of a file. Raises DoesNotFit when that cannot be read, MissingExtra without the library."""
    extras.require("avro")
    from fastavro import schemaless_writer
    from fastavro.repository.base import SchemaRepositoryError
    from fastavro.schema import SchemaParseException, UnknownType, load_schema

    try:
        schema = load_schema(str(schema_file))
    except (OSError, ValueError, TypeError, SchemaParseException, UnknownType, SchemaRepositoryError) as error:
        raise DoesNotFit(f"{schema_file} cannot be read as an Avro schema: {error}") from error

    def write(row: dict[str, Any]) -> bytes:
        output = io.BytesIO()
        try:
            schemaless_writer(output, schema, row, strict_allow_default=True)
        except _REFUSALS as error:
            raise DoesNotFit(" ".join(str(error).split())) from error
        return output.getvalue()

    return write
