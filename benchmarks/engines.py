"""Run what is claimed of each engine, and hold the outcome against what ``chaos/engines/rows.yaml`` says: ``make engines``.

Writes ``build/engines.json``: ``[{engine, row, experiment, fault, guarantee, lost, duplicated, first_output_s, outcome, as_expected}]``, a
row for each experiment; times in s, of results ``lost`` are those that are missing. Words on the command line choose those whose name holds
one of them. Exit code 1 unless all are as expected.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import yaml

from benchmarks import verdicts
from benchmarks.verdicts import ROOT
from streamproof.experiment import model

FOLDER = ROOT / "chaos" / "engines"
RESULTS = ROOT / "build" / "engines.json"
RUN_S = 1800


def rows(only: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rows.yaml").read_text())
    return [row for row in found if not only or any(word in row["experiment"] for word in only)]


def main(only: list[str]) -> int:
    chosen, results = rows(only), list[dict[str, Any]]()
    for number, row in enumerate(chosen, 1):
        begun = time.monotonic()
        result, reason = judged(row)
        results.append(result)
        word = "as expected" if result["as_expected"] else f"NOT as expected ({row['expected']}, {row.get('found', [])}): {reason}"
        print(f"{number} of {len(chosen)}  {row['experiment']}: {result['outcome']}, {word}; {time.monotonic() - begun:.0f} s", flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    right = sum(result["as_expected"] for result in results)
    print(f"{right} of {len(results)} as expected; {RESULTS}")
    return 0 if right == len(results) else 1


def judged(row: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What came of one row, and the reason of its verdict."""
    file = FOLDER / f"{row['experiment']}.yaml"
    described = yaml.safe_load(file.read_text())
    result = {
        "engine": row["engine"],
        "row": row["row"],
        "experiment": row["experiment"],
        "fault": ", ".join(fault["fault"] for fault in described.get("faults", ())),
        "guarantee": str(model.load(file).promised),
    }
    verdict, reason = verdicts.of(file, RUN_S)
    if verdict is None:
        return {**result, "outcome": None, "as_expected": False}, reason
    result |= {
        "lost": sum(verdict["anomalies"].get(anomaly, 0) for anomaly in ("LOST", "MISSING")),
        "duplicated": sum(verdict["anomalies"].get(anomaly, 0) for anomaly in ("DUPLICATED", "REPEATED")),
        "first_output_s": verdict["recovery_s"],
        "outcome": verdict["outcome"],
        "as_expected": verdict["outcome"] == row["expected"]
        and verdicts.found(verdict) - set(row.get("may", ())) == set(row.get("found", ()))
        and row.get("says", "") in reason,
    }
    return result, reason


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
