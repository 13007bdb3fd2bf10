"""``python -m tests.zoo.run``: does the sweep find each planted bug, and does it leave the repaired jobs alone?

Each job of the catalogue is swept by ``streamproof sweep`` with its defaults, the buggy one and the repaired one. A bug is *found* when the
sweep is FAILED, and *named rightly* when it shows an anomaly that the catalogue names. A repaired job that is FAILED is a *false alarm*.

Writes ``build/zoo.json`` after each job, so that a run that is stopped has shown something, and ``--resume`` goes on with it: what was
swept of this very commit is not swept again. Exit code 1 unless every bug was found and no repaired job accused.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.verdicts import commit, side_by_side, streamproof
from streamproof import settings
from tests.zoo.catalogue import VARIANTS, ZOO, Specimen, specimens

ROOT = ZOO.parents[1]
RESULTS = ROOT / "build" / "zoo.json"
SWEEP_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.run", description="Sweep the jobs of the zoo.")
    parser.add_argument("only", nargs="*", help="the names of some jobs; all when absent")
    parser.add_argument("--variant", choices=VARIANTS, help="only these")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="how many at a time, each on a testbed of its own")
    parser.add_argument("--resume", action="store_true", help=f"keep what {RESULTS.relative_to(ROOT)} has of this commit")
    given = parser.parse_args()
    variants = [given.variant] if given.variant else list(VARIANTS)
    asked = [(job, variant) for job in specimens() if not given.only or job.job in given.only for variant in variants]
    state = commit()
    swept = kept(state) if given.resume else []
    done_before = {(each["job"], each["variant"]) for each in swept}
    todo = [(job, variant) for job, variant in asked if (job.job, variant) not in done_before]
    for done in side_by_side(settings.home() / "zoo", given.side_by_side, todo, sweep, SWEEP_S):
        result = done.result()
        swept.append(result)
        told = f"{result['job']} {result['variant']}: {result['outcome']}, {result['reason']}; {result['minutes']} min"
        print(f"{len(swept)} of {len(done_before) + len(todo)}  {told}", flush=True)
        write(state, swept)
    summary = write(state, swept)
    print(json.dumps({name: value for name, value in summary.items() if name != "results"}))
    return 0 if summary["found"] == summary["jobs"] and not summary["false_alarms"] else 1


def sweep(one: tuple[Specimen, str], home: Path) -> dict[str, Any]:
    """One variant of a job swept."""
    job, variant = one
    begun = time.monotonic()
    done = streamproof(home, "sweep", str(ZOO / job.job / f"{variant}.yaml"), "--json", timeout_s=SWEEP_S)
    minutes = round((time.monotonic() - begun) / 60, 1)
    common = {"job": job.job, "variant": variant, "minutes": minutes}
    if not done.stdout.strip():
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        last = next((line for line in reversed(said) if "error" in line.lower()), said[-1])
        return {**common, "outcome": "ERROR", "reason": last, "found": [], "by": [], "named_rightly": False, "windows": 0}
    told = json.loads(done.stdout)
    broken = [result for result in told["results"] if result["outcome"] == "FAILED"]
    found = sorted({anomaly for result in broken for anomaly in result["found"]})
    return {
        **common,
        "outcome": told["outcome"],
        "reason": told["reason"],
        "found": found,
        "by": [f"{result['fault']} at {result['where']}" for result in broken],
        "named_rightly": bool(set(found) & {str(anomaly) for anomaly in job.anomalies}),
        "windows": len(told["windows"]),
    }


def kept(state: str) -> list[dict[str, Any]]:
    """What was swept of this commit and came to a verdict."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    same = before.get("commit") == state and not state.endswith("-dirty")
    return [each for each in before["results"] if each["outcome"] != "ERROR"] if same else []


def write(state: str, swept: list[dict[str, Any]]) -> dict[str, Any]:
    """The results so far, with their sums."""
    buggy = [one for one in swept if one["variant"] == "buggy"]
    repaired = [one for one in swept if one["variant"] == "repaired"]
    summary = {
        "commit": state,
        "jobs": len(buggy),
        "found": sum(one["outcome"] == "FAILED" for one in buggy),
        "named_rightly": sum(one["outcome"] == "FAILED" and one["named_rightly"] for one in buggy),
        "repaired": len(repaired),
        "repaired_passed": sum(one["outcome"] == "PASSED" for one in repaired),
        "false_alarms": sum(one["outcome"] == "FAILED" for one in repaired),
        "median_minutes": statistics.median([one["minutes"] for one in swept] or [0]),
        "results": swept,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(summary, indent=1) + "\n")
    return summary


if __name__ == "__main__":
    sys.exit(main())
