"""The catalogue of faults for machines: each fault with its parameters, their bounds, and the jobs that it applies to."""

from __future__ import annotations

import sys
from typing import Any

from streamproof.engines.command.job import CommandSpec
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.faults import FAULTS
from streamproof.jobs.profile import JobProfile
from streamproof.verdict.guarantee import Guarantee

OWN_JOBS = {
    transactions: CommandSpec(command=["job"], promises=Guarantee.AT_LEAST_ONCE, transactions=transactions).profile
    for transactions in (False, True)
}
"""A job of the user's own, any command line, by whether it says that it writes in Kafka transactions."""
_BOUNDS = {"minimum": "minimum", "maximum": "maximum", "exclusiveMinimum": "above", "exclusiveMaximum": "below", "enum": "choices"}


def describe(name: str) -> dict[str, Any]:
    """One fault. ``occupies`` is what it needs for itself, None when it is injected alone; at ``sites`` the job may be held for it.

    ``own_job`` and ``own_job_with_transactions`` say whether it can be injected into a job of the user's own (``job:``).
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
        "own_job": _can_be_injected(name, OWN_JOBS[False]),
        "own_job_with_transactions": _can_be_injected(name, OWN_JOBS[True]),
        "occupies": None if fault.occupies is None else sorted(fault.occupies),
        "sites": sorted(fault.sites),
        "document": (sys.modules[type(fault).__module__].__doc__ or "").strip(),
    }


def own_jobs(fault: dict[str, Any]) -> str | None:
    """Which jobs of the user's own a described fault can be injected into: those ``with`` transactions, those ``without``, all of them (the
    empty text), or none (None)."""
    without, in_transactions = fault["own_job"], fault["own_job_with_transactions"]
    if without == in_transactions:
        return "" if without else None
    return "without" if without else "with"


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
