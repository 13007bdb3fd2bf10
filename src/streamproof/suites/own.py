"""A user's own expectations, on the columns of what was delivered.

A suite in Great Expectations' own format: a ``name`` and ``expectations``, each with a ``type`` and its ``kwargs``. It is evaluated over
the delivered records, copies included, a row each. The columns are the fields of the payload (of a result of a stateful job: the result's
own); what is no plain value is there as JSON. Beside them, where each came from: ``_key``, ``_partition``, ``_offset``, ``_batch`` and
``_start``, -1 where a number is not known.

An expectation that Great Expectations does not have may be the project's own: ``expectations/<its type>.py`` in the project defines it.

These are expectations on data, not on delivery: one that does not hold makes the run FAILED, whatever became of the records. One that
cannot be evaluated (it names a column that is not there) makes it an ERROR.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.payloads import read_payloads

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 3
FILE = "suite.json"


class SuiteError(Exception):
    """A suite cannot be used. The message has a line for each expectation that is wrong."""


def path(folder: RunFolder) -> Path:
    """Where a run keeps its user's suite; the file is there only if it has one."""
    return Path(folder.path) / FILE


def check(suite: dict[str, Any]) -> None:
    """Raises SuiteError naming each expectation that Great Expectations does not know, or that has arguments it does not take.

    It imports Great Expectations, which takes seconds.
    """
    from streamproof.suites.evaluate import warm_up

    warm_up()
    load_project([str(expectation["type"]) for expectation in suite["expectations"]])
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    wrong = []
    for number, expectation in enumerate(suite["expectations"]):
        kind = str(expectation["type"])
        try:
            ExpectationConfiguration(type=kind, kwargs=dict(expectation.get("kwargs") or {})).to_domain_obj()
        except ExpectationNotFoundError:
            wrong.append(f"suite: expectations.{number}: there is no expectation {kind!r} in Great Expectations")
        except (ValueError, TypeError) as error:
            wrong.append(f"suite: expectations.{number}: {kind}: {_problems(error)}")
        else:
            if kind == "unexpected_rows_expectation":
                wrong.append(f"suite: expectations.{number}: {kind} is SQL, and the delivered records are not in a database")
    if wrong:
        raise SuiteError("\n".join(wrong))


def load_project(types: Iterable[str]) -> None:
    """Import the project's own expectations among ``types``: ``expectations/<type>.py`` defines the one of that name.

    Raises SuiteError when such a file does not define it.
    """
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    for kind in dict.fromkeys(types):
        file = settings.project() / "expectations" / f"{kind}.py"
        if kind in list_registered_expectation_implementations() or not file.is_file():
            continue
        module_spec = importlib.util.spec_from_file_location(kind, file)
        if module_spec is None or module_spec.loader is None:
            raise SuiteError(f"suite: {file} cannot be imported")
        module_spec.loader.exec_module(importlib.util.module_from_spec(module_spec))
        if kind not in list_registered_expectation_implementations():
            raise SuiteError(f"suite: {file} defines no expectation {kind!r}: Great Expectations names it after its class")


def _problems(error: Exception) -> str:
    """What pydantic found, on one line; of an argument that may be of several kinds the first."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return " ".join(str(error).split())
    problems: dict[str, str] = {}
    for problem in errors():
        problems.setdefault(".".join(str(part) for part in problem["loc"]).replace("__root__", "arguments"), str(problem["msg"]))
    return ", ".join(f"{field}: {message}" for field, message in problems.items())


def columns(folder: RunFolder) -> pd.DataFrame:
    """The delivered records as columns. Raises EvidenceError when their values were not kept."""
    import pandas as pd

    payloads = read_payloads(folder)
    rows = [_fields(value) for value in payloads.values]
    frame = pd.DataFrame.from_records(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))
    for name in ("partition", "offset", "batch", "start"):
        frame[f"_{name}"] = getattr(payloads.delivered, name)
    frame["_key"] = [None if key is None else key.decode(errors="replace") for key in payloads.keys]
    return frame


def _fields(value: bytes | None) -> dict[str, Any]:
    """A record's columns; none where the value is no JSON object."""
    try:
        content = json.loads(value or b"")
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    fields = content["payload"] if isinstance(content.get("payload"), dict) else content
    return {name: json.dumps(field) if isinstance(field, dict | list) else field for name, field in fields.items()}


def describe(expectation: Any) -> str:
    """An expectation in words: its own description, else its type with its arguments."""
    if expectation.description:
        return str(expectation.description)
    arguments = expectation.configuration.kwargs
    return f"{expectation.expectation_type}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def observed(result: dict[str, Any]) -> str:
    """What Great Expectations found, on one line."""
    if "unexpected_count" not in result:
        return str(result.get("observed_value"))
    some = ", ".join(repr(value) for value in (result.get("partial_unexpected_list") or [])[:SHOWN])
    summary = f"{result['unexpected_count']} of {result.get('element_count')} values are not as expected"
    return summary + (f", for instance {some}" if some else "")
