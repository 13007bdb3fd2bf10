"""What a user wrote, read and validated: YAML in which no key is given twice, and errors of one line for each problem."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from streamproof.errors import BadInput
from streamproof.shown import named, shown

Model = TypeVar("Model", bound=BaseModel)


class _TwiceGiven(yaml.YAMLError):
    """A mapping gives one key twice."""


class _Loader(yaml.SafeLoader):
    """Plain YAML, in which no key may be given twice: PyYAML lets the last one win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key = key_node.tag, key_node.value
            line = key_node.start_mark.line + 1
            if key in first:
                raise _TwiceGiven(f"line {line}: {named(key_node.value)} is given twice, first in line {first[key]}: remove one of them")
            first[key] = line
        return super().construct_mapping(node, deep)


# What PyYAML raises besides YAMLError: for dates and numbers that are none, for a tag that does not fit its value, for deep nesting.
_CHOKES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


NOT_YAML = (yaml.YAMLError, *_CHOKES)


def parsed_yaml(text: str) -> Any:
    """What a YAML document holds. Raises one of NOT_YAML."""
    return yaml.load(text, _Loader)


def load_as(path: Path, model: type[Model], needed: str, whole: str) -> Model:
    """Read a YAML file as ``model``: ``needed`` is what its mapping has to hold, ``whole`` what it is. Raises BadInput as :func:`load`."""
    return parse(load_as_mapping(path, needed), str(path), model, whole)


def load_as_mapping(path: Path, needed: str) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; ``needed`` is what it has to hold. Raises BadInput naming the file and what is wrong."""
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file. The project's experiments are in chaos/") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    try:
        data = parsed_yaml(text)
    except _TwiceGiven as error:
        raise BadInput(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not YAML: {_problem(error)}") from error
    except _CHOKES as error:
        raise BadInput(f"{path} is not YAML that can be read: {type(error).__name__}: {named(str(error))}") from error
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a mapping with {needed}, came {type(data).__name__}")
    return data


def _problem(error: yaml.YAMLError) -> str:
    """What PyYAML says, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())


def parse(data: dict[str, Any], where: str, model: type[Model], whole: str = "the experiment") -> Model:
    """Validate ``data``. Raises BadInput with one line per problem."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(explain(error, where, whole)) from None


def explain(error: ValidationError, where: str, whole: str = "the experiment") -> str:
    """Pydantic's findings as lines that a user can act on."""
    lines = []
    for problem in error.errors():
        field = ".".join(named(part) for part in problem["loc"]) or whole
        message = problem["msg"].removeprefix("Value error, ")
        came = "" if problem["type"] in ("missing", "value_error") else f", came {shown(problem['input'])}"
        lines.append(f"{where}: {field}: {message}{came}")
    return "\n".join(lines)
