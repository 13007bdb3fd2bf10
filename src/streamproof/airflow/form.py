"""The experiment's form in Airflow: the same pydantic model as the command line's, shown as DAG params."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Param

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.experiment.form import PRESETS, Form
from streamproof.experiment.reading import parse
from streamproof.faults import FAULTS


def _preset(name: str, path: Path) -> str:
    """A preset's name, and what the comment that its file begins with says."""
    first = path.read_text().partition("\n")[0]
    return f"{name}: {first.removeprefix('# ')}" if first.startswith("# ") else name


# What a choice is shown as; Airflow sends its name.
_SHOWN = {
    "preset": {**{name: _preset(name, path) for name, path in PRESETS.items()}, "null": "none: what the fields below say"},
    "strategy": {name: f"{name} ({strategy.guarantee}): {strategy.summary}" for name, strategy in STRATEGIES.items()},
    "fault": {**{name: f"{name}: {fault.summary}" for name, fault in FAULTS.items()}, "none": "none: nothing is broken"},
}
_KEYWORDS = ("enum", "minimum", "maximum", "description")


def params() -> dict[str, Param]:
    """One Param a field, with the model's enums, ranges, defaults and descriptions."""
    schema = Form.model_json_schema()
    return {name: _param(name, field, schema.get("$defs", {})) for name, field in schema["properties"].items()}


def _param(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> Param:
    """JSON schema as the form understands it: one flat object, a field that may be empty has the type null too."""
    choices = [_resolve(choice, definitions) for choice in field.get("anyOf", [field])]
    merged: dict[str, Any] = {}
    for choice in choices:
        merged |= {key: choice[key] for key in _KEYWORDS if key in choice}
    merged |= {key: field[key] for key in _KEYWORDS if key in field}
    types = list(dict.fromkeys(choice["type"] for choice in choices if "type" in choice)) or ["string"]
    if "enum" in merged and "null" in types:
        merged["enum"] = [*merged["enum"], None]
    if name in _SHOWN:
        merged["values_display"] = _SHOWN[name]
    return Param(field.get("default"), type=types[0] if len(types) == 1 else types, title=name.replace("_", " ").capitalize(), **merged)


def _resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return {**definitions[reference.rsplit("/", 1)[1]], **schema} if reference else schema


def validate(conf: dict[str, Any]) -> Form:
    """Validate what came from the form or the API. Airflow lets unknown keys pass; this does not.

    Raises BadInput with one line per problem.
    """
    return parse(conf, "the form", Form)
