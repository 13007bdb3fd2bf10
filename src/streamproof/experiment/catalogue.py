"""The catalogue of faults for machines: each fault with its parameters, their bounds, and the jobs that it applies to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

from pydantic import ValidationError

from streamproof.engines.command.job import CommandSpec
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.faults import FAULTS
from streamproof.jobs.profile import JobProfile
from streamproof.verdict.guarantee import Guarantee

OWN_JOBS: dict[str, dict[Any, Any]] = {
    "delivers": {
        "kafka": {},
        "postgres": {"table": "rows", "identity": {"column": "id"}},
        "files": {"identity": {"column": "id"}},
        "delta": {"identity": {"column": "id"}},
        "iceberg": {"table": "a.rows", "identity": {"column": "id"}},
        "iceberg_folder": {"table": "a.rows", "identity": {"column": "id"}},
    },
    "transactions": {False: False, True: True},
    "instances": {None: 1, "several": 2},
    "executors": {None: None, "jvm": "jvm", "python": "python"},
    "progress": {"group": "group", "spark_checkpoint": {"spark_checkpoint": "{checkpoint}"}, "output": "output"},
    "promises": {str(guarantee): guarantee for guarantee in Guarantee},
}
"""What may be said of a job of the user's own that decides which faults it can have: the keys of ``job:``, with their values by a short
name. ``progress: group`` stands for any group."""
_BOUNDS = {"minimum": "minimum", "maximum": "maximum", "exclusiveMinimum": "above", "exclusiveMaximum": "below", "enum": "choices"}


def describe(name: str) -> dict[str, Any]:
    """One fault. ``occupies`` is what it needs for itself, None when it is injected alone; at ``sites`` the job may be held for it.

    ``own_jobs`` says into which jobs of the user's own (``job:``) it can be injected: those that fit one of its descriptions. Each names
    the values that keys of ``job:`` must have. An empty list is no job, an empty description every job.
    """
    fault = FAULTS[name]
    schema = fault.parameters_model.model_json_schema()
    parameters = {key: _parameter(about, schema.get("$defs", {})) for key, about in schema.get("properties", {}).items()}
    required = set(schema.get("required", ()))
    return {
        "name": name,
        "summary": fault.summary,
        "target": fault.target,
        "parameters": {key: {**about, "required": key in required} for key, about in parameters.items()},
        "strategies": [strategy for strategy in STRATEGIES if _can_be_injected(name, profile(strategy))],
        "own_jobs": _described([job for job, known in _own_jobs().items() if _can_be_injected(name, known)]),
        "occupies": None if fault.occupies is None else sorted(fault.occupies),
        "sites": sorted(fault.sites),
        "document": (sys.modules[type(fault).__module__].__doc__ or "").strip(),
    }


def own_jobs(fault: dict[str, Any]) -> str | None:
    """Into which jobs of the user's own a described fault can be injected, in words: "with `executors`". The empty text for every job, None
    for none."""
    described: list[dict[str, list[Any]]] = fault["own_jobs"]
    said = [
        sorted((_in_words(key, values) for key, values in each.items()), key=lambda part: part.startswith("without")) for each in described
    ]
    return "; or ".join(map(", ".join, said)) if said else None


def _in_words(key: str, values: list[Any]) -> str:
    every, others = list(OWN_JOBS[key]), [value for value in OWN_JOBS[key] if value not in values]
    can_be_left_out = not all(every)
    without = not all(values) if can_be_left_out else len(others) < len(values)
    named = [value for value in (others if without else values) if value]
    whole = can_be_left_out and named == [value for value in every if value]
    return f"{'without' if without else 'with'} {f'`{key}`' if whole else ' or '.join(f'`{key}: {value}`' for value in named)}"


_OwnJob = tuple[Any, ...]  # a value for each key of OWN_JOBS, by its short name


@cache
def _own_jobs() -> dict[_OwnJob, JobProfile]:
    """Every job of the user's own that can be described by these keys."""
    jobs = {}
    for values in product(*OWN_JOBS.values()):
        said = {key: OWN_JOBS[key][value] for key, value in zip(OWN_JOBS, values, strict=True)}
        with suppress(ValidationError):  # they contradict each other
            document = {**said, "command": ["job"], "delivers": {values[0]: said["delivers"]}}
            jobs[values] = CommandSpec.model_validate(document).profile
    return jobs


def _described(jobs: Sequence[_OwnJob]) -> list[dict[str, list[Any]]]:
    """The fewest words for exactly these jobs: what each key must be; several descriptions where one does not tell them from the others."""
    if not jobs:
        return []
    allowed = {key: [value for value in OWN_JOBS[key] if any(job[place] == value for job in jobs)] for place, key in enumerate(OWN_JOBS)}
    if _fitting(allowed) != set(jobs):
        place = next(place for place, key in enumerate(OWN_JOBS) if len(allowed[key]) > 1)
        parts = [part for value in allowed[list(OWN_JOBS)[place]] for part in _described([job for job in jobs if job[place] == value])]
        return _joined(parts, list(OWN_JOBS)[place])
    for key in OWN_JOBS:
        if _fitting(fewer := {other: values for other, values in allowed.items() if other != key}) == set(jobs):
            allowed = fewer
    return [allowed]


def _joined(parts: Sequence[dict[str, list[Any]]], key: str) -> list[dict[str, list[Any]]]:
    """Descriptions that differ in the values of ``key`` alone are one."""
    joined = list[dict[str, list[Any]]]()
    for part in parts:
        alike = (one for one in joined if key in one and key in part and {**one, key: None} == {**part, key: None})
        if (one := next(alike, None)) is None:
            joined.append(dict(part))
        else:
            one[key] = [*one[key], *part[key]]
    return joined


def _fitting(allowed: dict[str, list[Any]]) -> set[_OwnJob]:
    """The jobs that fit a description."""
    places = [(list(OWN_JOBS).index(key), values) for key, values in allowed.items()]
    return {job for job in _own_jobs() if all(job[place] in values for place, values in places)}


def _parameter(about: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A parameter's JSON schema, flat: what it may be without null, its bounds, whether it may be null."""
    kinds = [_resolved(kind, definitions) for kind in about.get("anyOf", [about])]
    not_null = [kind for kind in kinds if kind.get("type") != "null"]
    bounds = {ours: kind[theirs] for kind in not_null for theirs, ours in _BOUNDS.items() if theirs in kind}
    return {
        "type": " or ".join(str(kind.get("type", "any")) for kind in not_null),
        "nullable": len(not_null) < len(kinds),
        "default": about.get("default"),
        **bounds,
        "description": about.get("description", ""),
    }


def _resolved(kind: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = kind.get("$ref")
    return {**definitions[reference.rsplit("/", 1)[1]], **kind} if reference else kind


def _can_be_injected(name: str, job: JobProfile) -> bool:
    try:
        FAULTS[name].check(job, {})
    except ValueError:
        return False
    return True
