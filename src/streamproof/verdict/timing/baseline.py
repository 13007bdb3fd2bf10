"""A run beside the same run without faults: the same experiment, seed and versions, so that what differs is what the faults cost.

The faulted run keeps the other's figures in its own folder, ``baseline.json``: it can be judged again when the other is long gone.

Ratios are the faulted run's figure by the other's: of a time 2.0 is twice as long, of a rate 0.5 half as many a second. A run of seconds on
a machine with other work differs from itself by some tenths; that is no cost of a fault.
"""

from __future__ import annotations

import json
from typing import Any

from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder, write_atomically

TIMES = ("output_s", "longest_gap_s")


def figures(verdict: dict[str, Any]) -> dict[str, Any]:
    """What of a verdict is compared. Raises KeyError for a verdict that was written before these were measured."""
    return {
        **{name: verdict[name] for name in TIMES},
        "records_per_s": {phase: found["records_per_s"] for phase, found in verdict["phases"].items()},
    }


def attach(folder: RunFolder, other: RunFolder, verdict: dict[str, Any]) -> None:
    """Keep the figures of ``other``, whose verdict this is, in ``folder``."""
    known = {name: verdict[name] for name in ("run", "experiment", "strategy", "seed", "versions")}
    found = {"schema": SCHEMA_VERSION, **known, "folder": str(other.path), **figures(verdict)}
    write_atomically(folder.baseline, json.dumps(found, indent=1))


def compared(folder: RunFolder, verdict: dict[str, Any]) -> dict[str, Any] | None:
    """The baseline of ``folder``, with the ratios of ``verdict`` to it; None when the run has none.

    Raises EvidenceError when ``baseline.json`` is damaged.
    """
    if not folder.baseline.exists():
        return None
    other = folder.read_json(folder.baseline)
    own = figures(verdict)
    try:
        rates = other["records_per_s"]
        ratios = {
            **{name: _ratio(own[name], other[name]) for name in TIMES},
            "records_per_s": {phase: _ratio(rate, rates.get(phase)) for phase, rate in own["records_per_s"].items()},
        }
        return {key: other[key] for key in ("run", "folder", *TIMES, "records_per_s")} | {"ratios": ratios}
    except (KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{folder.baseline} is damaged: {type(error).__name__}: {error}") from error


def _ratio(own: float | None, other: float | None) -> float | None:
    return None if own is None or not other else round(own / other, 2)
