"""``python -m tests.zoo.run``: does the sweep find each planted bug, and does it leave the repaired jobs alone?

Each job of the catalogue is swept by ``streamproof sweep`` with its defaults, the buggy one and the repaired one. A bug is *found* when the
sweep is FAILED, and *named rightly* when it shows an anomaly that the catalogue names. A repaired job that is FAILED is a *false alarm*.

Writes ``build/zoo.json`` after each job, so that a run that is stopped has shown something. Exit code 1 unless every bug was found and no
repaired job accused.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from tests.zoo.catalogue import VARIANTS, ZOO, specimens

ROOT = ZOO.parents[1]
RESULTS = ROOT / "build" / "zoo.json"
SWEEP_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.run", description="Sweep the jobs of the zoo.")
    parser.add_argument("only", nargs="*", help="the names of some jobs; all when absent")
    parser.add_argument("--variant", choices=VARIANTS, help="only these")
    given = parser.parse_args()
    variants = [given.variant] if given.variant else list(VARIANTS)
    chosen = [job for job in specimens() if not given.only or job.job in given.only]
    swept: list[dict[str, Any]] = []
    for number, job in enumerate(chosen, 1):
        for variant in variants:
            result = sweep(job.job, variant)
            result["named_rightly"] = bool(set(result["found"]) & {str(anomaly) for anomaly in job.anomalies})
            swept.append(result)
            print(
                f"{number} of {len(chosen)}  {job.job} {variant}: {result['outcome']}, {result['reason']}; {result['minutes']} min",
                flush=True,
            )
            write(swept)
    summary = write(swept)
    print(json.dumps({name: value for name, value in summary.items() if name != "results"}))
    return 0 if summary["found"] == summary["jobs"] and not summary["false_alarms"] else 1


def sweep(name: str, variant: str) -> dict[str, Any]:
    """One job swept."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "streamproof.cli.main", "sweep", str(ZOO / name / f"{variant}.yaml"), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SWEEP_S, check=False)
    minutes = round((time.monotonic() - begun) / 60, 1)
    common = {"job": name, "variant": variant, "minutes": minutes}
    if not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {**common, "outcome": "ERROR", "reason": last, "found": [], "windows": 0}
    told = json.loads(done.stdout)
    found = sorted({anomaly for result in told["results"] for anomaly in result["found"]})
    return {**common, "outcome": told["outcome"], "reason": told["reason"], "found": found, "windows": len(told["windows"])}


def write(swept: list[dict[str, Any]]) -> dict[str, Any]:
    """The results so far, with their sums."""
    buggy = [one for one in swept if one["variant"] == "buggy"]
    repaired = [one for one in swept if one["variant"] == "repaired"]
    summary = {
        "jobs": len(buggy),
        "found": sum(one["outcome"] == "FAILED" for one in buggy),
        "named_rightly": sum(one["outcome"] == "FAILED" and one["named_rightly"] for one in buggy),
        "repaired": len(repaired),
        "repaired_passed": sum(one["outcome"] == "PASSED" for one in repaired),
        "false_alarms": sum(one["outcome"] == "FAILED" for one in repaired),
        "median_minutes": statistics.median(one["minutes"] for one in swept),
        "results": swept,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(summary, indent=1) + "\n")
    return summary


if __name__ == "__main__":
    sys.exit(main())
