"""Rows that are made by a JSON Schema, for who has no data yet: each has what the schema requires, and most of what it allows.

The same seed makes the same rows. What is understood is what describes a value by itself: types, ``properties``, ``items``, bounds,
lengths, ``pattern``, the usual ``format``, ``enum``, ``const``, ``allOf``, ``anyOf``, ``oneOf``, and ``$ref`` within the file. The first
rows are held against the schema by a validator, so that a schema which asks for more is refused before anything is started.

Checked against: JSON Schema 2020-12, with ``jsonschema`` as the validator; ``rstr`` makes text that a pattern finds.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import string
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamproof import extras

VALIDATED = 200
"""How many rows are held against the schema."""
OPTIONAL, NULL = 0.75, 0.1
"""How often what is optional is there, and how often what may be null is."""
DEEPEST = 12
SPAN = 1_000_000
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
LONGEST_WORD = 12
MOST_ITEMS = 3
UNIQUE_TRIES = 20
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_ABOUT_OBJECTS = frozenset({"properties", "required"})
Schema = dict[str, Any]


class DoesNotFit(Exception):
    """The file is no JSON Schema of an object, or one by which no row could be made. The message names it."""


def rows(path: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Rows without end. Raises DoesNotFit; MissingExtra without the libraries."""
    extras.require("schema")
    import jsonschema
    from jsonschema.validators import validator_for

    try:
        schema = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DoesNotFit(f"{path} cannot be read as a JSON Schema: {error}") from error
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise DoesNotFit(f"{path} is no JSON Schema: {error.json_path}: {error.message}") from error
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    maker = _Maker(path, schema, random.Random(f"schema:{seed}"))
    for number in itertools.count(1):
        row = maker.value(schema)
        if not isinstance(row, dict):
            raise DoesNotFit(f"{path}: expected the schema of an object, which a record is; it describes {json.dumps(row)[:80]}")
        if number <= VALIDATED and (unfit := next(validator.iter_errors(row), None)) is not None:
            raise DoesNotFit(
                f"{path}: no row could be made that fits: {unfit.json_path} of row {number}: {unfit.message}; "
                f"{unfit.validator!r} asks for more than is understood, so give a file of rows instead"
            )
        yield row


class _Maker:
    def __init__(self, path: Path, root: Any, rng: random.Random) -> None:
        self._path, self._root, self._rng = path, root, rng
        self._makers: dict[str, Callable[[Schema, int], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": lambda schema, _: self._string(schema),
            "integer": lambda schema, _: self._integer(schema),
            "number": lambda schema, _: self._number(schema),
            "boolean": lambda *_: self._rng.random() < 0.5,
            "null": lambda *_: None,
        }

    def value(self, described: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise DoesNotFit(f"{self._path}: it requires values that are nested more than {DEEPEST} deep")
        schema = self._flat(described)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        return self._makers[self._type(schema)](schema, depth)

    def _flat(self, described: Any) -> Schema:
        """The schema without references and choices: of ``anyOf`` and ``oneOf`` one is taken."""
        if described is False:
            raise DoesNotFit(f"{self._path}: it requires something for which it allows nothing (false)")
        if described is True:
            return {}
        schema = dict(described)
        parts = []
        if (name := schema.pop("$ref", None)) is not None:
            parts.append(self._referred(name))
        parts += schema.pop("allOf", [])
        parts += [self._rng.choice(schema.pop(word)) for word in ("anyOf", "oneOf") if schema.get(word)]
        for part in parts:
            schema = _both(schema, self._flat(part))
        return schema

    def _referred(self, name: str) -> Any:
        found = self._root
        try:
            if not name.startswith("#"):
                raise LookupError
            for word in name.removeprefix("#").split("/")[1:]:
                word = word.replace("~1", "/").replace("~0", "~")
                found = found[int(word)] if isinstance(found, list) else found[word]
        except (LookupError, ValueError, TypeError):
            raise DoesNotFit(f"{self._path}: expected a $ref to a place in the same file, as in #/$defs/address; came {name!r}") from None
        return found

    def _type(self, schema: Schema) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, str):
            return kinds
        if kinds:
            others = [kind for kind in kinds if kind != "null"]
            return "null" if not others or ("null" in kinds and self._rng.random() < NULL) else str(self._rng.choice(others))
        if _ABOUT_OBJECTS & schema.keys():
            return "object"
        return "array" if "items" in schema else "integer" if {"minimum", "maximum"} & schema.keys() else "string"

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        unnamed: Schema = {name: {} for name in schema.get("required", ()) if name not in properties}
        chosen = {name: each for name, each in properties.items() if name in required or (depth < DEEPEST // 2 and self._often())}
        return {name: self.value(each, depth + 1) for name, each in {**chosen, **unnamed}.items()}

    def _often(self) -> bool:
        return self._rng.random() < OPTIONAL

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        first, rest = schema.get("prefixItems", []), schema.get("items", {})
        least = schema.get("minItems", len(first))
        most = max(least, min(schema.get("maxItems", least + MOST_ITEMS), least + MOST_ITEMS)) if depth < DEEPEST // 2 else least
        wanted, found = self._rng.randint(least, most), list[Any]()
        for number in range(wanted):
            described = first[number] if number < len(first) else rest
            if described is False:
                break
            made = self.value(described, depth + 1)
            for _ in range(UNIQUE_TRIES if schema.get("uniqueItems") else 0):
                if made not in found:
                    break
                made = self.value(described, depth + 1)
            found.append(made)
        return found

    def _integer(self, schema: Schema) -> int:
        low, high = _bounds(schema)
        step = schema.get("multipleOf", 1)
        if step != int(step):
            step = 1
        first, last = math.ceil(low / step), math.floor(high / step)
        if "exclusiveMinimum" in schema and first * step <= schema["exclusiveMinimum"]:
            first += 1
        if "exclusiveMaximum" in schema and last * step >= schema["exclusiveMaximum"]:
            last -= 1
        if first > last:
            raise DoesNotFit(f"{self._path}: no integer lies between {low} and {high}")
        return int(self._rng.randint(first, last) * step)

    def _number(self, schema: Schema) -> float:
        low, high = _bounds(schema)
        if step := schema.get("multipleOf"):
            return float(self._rng.randint(math.ceil(low / step), math.floor(high / step)) * step)
        made = round(self._rng.uniform(low, high), 2)
        inside = schema.get("exclusiveMinimum", -math.inf) < made < schema.get("exclusiveMaximum", math.inf)
        return made if low <= made <= high and inside else low + (high - low) * self._rng.uniform(0.25, 0.75)

    def _string(self, schema: Schema) -> str:
        if (form := _FORMATS.get(schema.get("format", ""))) is not None:
            return form(self._rng)
        if pattern := schema.get("pattern"):
            import rstr

            return str(rstr.Rstr(self._rng).xeger(pattern))
        if schema.get("examples"):
            return str(self._rng.choice(schema["examples"]))
        least = schema.get("minLength", 1)
        most = max(least, min(schema.get("maxLength", LONGEST_WORD), least + LONGEST_WORD))
        return _word(self._rng, self._rng.randint(least, most))


def _both(one: Schema, other: Schema) -> Schema:
    """What fits both, as far as it can be said without solving anything: of a bound that both have the narrower one."""
    narrower = {"minimum": max, "exclusiveMinimum": max, "minLength": max, "minItems": max}
    narrower |= {"maximum": min, "exclusiveMaximum": min, "maxLength": min, "maxItems": min}
    both = {**other, **one}
    for name in one.keys() & other.keys():
        if name == "properties":
            shared = one[name].keys() & other[name].keys()
            both[name] = {**other[name], **one[name], **{key: {"allOf": [one[name][key], other[name][key]]} for key in shared}}
        elif name == "required":
            both[name] = list(dict.fromkeys([*one[name], *other[name]]))
        elif name == "enum":
            both[name] = [each for each in one[name] if each in other[name]]
        elif name in narrower:
            both[name] = narrower[name](one[name], other[name])
    return both


def _bounds(schema: Schema) -> tuple[float, float]:
    """From where to where a number may be, both included."""
    low = max((schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema), default=None)
    high = min((schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema), default=None)
    if low is None:
        low = 0 if high is None or high > 0 else high - SPAN
    return low, low + SPAN if high is None else high


def _word(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=length))


def _moment(rng: random.Random) -> datetime:
    return SINCE + timedelta(seconds=rng.randrange(365 * 24 * 3600))


_FORMATS: dict[str, Callable[[random.Random], str]] = {
    "date-time": lambda rng: _moment(rng).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "date": lambda rng: _moment(rng).strftime("%Y-%m-%d"),
    "time": lambda rng: _moment(rng).strftime("%H:%M:%SZ"),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "email": lambda rng: f"{_word(rng, 8)}@example.org",
    "hostname": lambda rng: f"{_word(rng, 8)}.example.org",
    "uri": lambda rng: f"https://example.org/{_word(rng, 8)}",
    "ipv4": lambda rng: f"192.0.2.{rng.randrange(256)}",
}
