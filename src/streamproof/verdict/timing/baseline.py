"""A run beside the same run without faults: the same experiment, seed and versions, so that what differs is what the faults cost.

The faulted run keeps the other's figures in its own folder, ``baseline.json``: it can be judged again when the other is long gone.

Ratios are the faulted run's figure by the other's: of a time 2.0 is twice as long, of a rate 0.5 half as many a second. A run of seconds on
a machine with other work differs from itself by some tenths; that is no cost of a fault.
"""

from __future__ import annotations

import json
from typing import Any

from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder, write_atomically
from streamproof.verdict.verdict import Account, BaselineFigures, BaselineRatios, Verdict


def attach(folder: RunFolder, other: RunFolder, verdict: Verdict) -> None:
    """Keep the figures of ``other``, whose verdict this is, in ``folder``."""
    figures = {
        "schema": SCHEMA_VERSION,
        "run": verdict.run,
        "experiment": verdict.experiment,
        "strategy": verdict.strategy,
        "seed": verdict.seed,
        "versions": verdict.versions,
        "folder": str(other.path),
        "output_s": verdict.output_s,
        "longest_gap_s": verdict.longest_gap_s,
        "records_per_s": _rates(verdict),
    }
    write_atomically(folder.baseline, json.dumps(figures, indent=1))


def compared(folder: RunFolder, account: Account) -> BaselineFigures | None:
    """The baseline of ``folder``, with the ratios of ``account`` to it; None when the run has none.

    Raises EvidenceError when ``baseline.json`` is damaged.
    """
    if not folder.baseline.exists():
        return None
    other: dict[str, Any] = folder.read_json(folder.baseline)
    try:
        rates = other["records_per_s"]
        ratios = BaselineRatios(
            output_s=_ratio(account.output_s, other["output_s"]),
            longest_gap_s=_ratio(account.longest_gap_s, other["longest_gap_s"]),
            records_per_s={phase: _ratio(rate, rates.get(phase)) for phase, rate in _rates(account).items()},
        )
        return BaselineFigures.model_validate({**other, "ratios": ratios})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvidenceError(f"{folder.baseline} is damaged: {type(error).__name__}: {error}") from error


def _rates(account: Account) -> dict[str, float | None]:
    return {phase: figures.records_per_s for phase, figures in account.phases.items()}


def _ratio(own: float | None, other: float | None) -> float | None:
    return None if own is None or not other else round(own / other, 2)
