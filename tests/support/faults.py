"""A run of a strategy with one fault, whose evidence must be whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.verdict.verdict import Verdict

RECORDS = 2400


def struck(
    strategy: str, fault: str, seed: int, expect: Sequence[str] = (), parameters: Mapping[str, Any] | None = None, **more: Any
) -> Verdict:
    """The verdict, once each check of the fault's evidence has passed. ``more`` is what the experiment says beside that."""
    described: dict[str, Any] = {
        "name": f"{fault}-{strategy}".replace("_", "-")[:60],
        "strategy": strategy,
        "workload": {"source": "synthetic", "records": RECORDS},
        "faults": [{"fault": fault, "at": 0.3, "parameters": dict(parameters or {})}],
        "expect": list(expect),
        "seed": seed,
        "timeout_s": 400,
        **more,
    }
    verdict = Verdict.read(runner.run(Experiment.model_validate(described)))
    assert [check for injection in verdict.injections for check in injection.evidence if not check.passed] == []
    assert [injection.took_effect for injection in verdict.injections] == [True]
    return verdict
