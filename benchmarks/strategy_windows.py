"""Does a sweep that knows nothing of a strategy find in it what a sweep finds that knows its steps? ``make sweep-windows``.

Each of our own strategies is swept twice: by its failpoints, which lie inside (``streamproof sweep STRATEGY``), and by the windows that
are seen from outside, as any job is (``streamproof sweep FILE --keep-going``). Both must come to the same: that the guarantee was kept, and
the same anomalies among those that it allows. Prints a table and writes ``build/strategy-windows.json``: a list of ``{strategy, guarantee,
steps, windows, hit, by_steps, by_windows, broken, same, minutes, commit}``, where ``by_steps`` and ``by_windows`` name the anomalies seen.
All of them take hours: ``--resume`` keeps what the file has, and each result names the commit that was swept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.verdicts import ROOT, commit, side_by_side, streamproof
from streamproof import settings
from streamproof.engines.spark.registry import STRATEGIES

RESULTS = ROOT / "build" / "strategy-windows.json"
SWEEP_S = 3600.0
SEEN_ELSEWHERE = {"OFFSET_AHEAD", "TORN", "REORDERED"}
"""What a look in time shows or does not: it is no difference between the two."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strategy", nargs="*", help="all when absent")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="how many at a time, each on a testbed of its own")
    parser.add_argument("--resume", action="store_true", help=f"keep what {RESULTS.relative_to(ROOT)} has")
    given = parser.parse_args()
    wanted = given.strategy or [name for name, one in STRATEGIES.items() if one.failpoints]
    results: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if given.resume and RESULTS.exists() else []
    compared_before = {result["strategy"] for result in results}
    print("| strategy | by its steps | by windows | hit | same | minutes |\n| --- | --- | --- | --- | --- | --- |")
    todo = [name for name in wanted if name not in compared_before]
    for done in side_by_side(settings.home() / "strategy-windows", given.side_by_side, todo, compared, SWEEP_S):
        try:
            results.append(done.result())
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(row(results[-1]), flush=True)
    return 0 if {result["strategy"] for result in results if result["same"]} >= set(wanted) else 1


def compared(name: str, home: Path) -> dict[str, Any]:
    """One strategy, swept in both ways. Raises RuntimeError with the last words of a sweep that came to no end."""
    begun = time.monotonic()
    inside = _swept(home, name)
    file = home / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"name": name.replace("_", "-"), "strategy": name}))
    outside = _swept(home, str(file), "--keep-going")
    by_steps = set().union(*(set(one["found"]) for one in inside["results"])) - SEEN_ELSEWHERE
    by_windows = set().union(*(_anomalies(home, one["run"]) for one in outside["results"])) - SEEN_ELSEWHERE
    broken = sorted({anomaly for one in outside["results"] for anomaly in one["found"]} | ({"wrong"} if inside["wrong"] else set()))
    windows = outside["windows"]
    return {
        "strategy": name,
        "guarantee": STRATEGIES[name].guarantee,
        "steps": len(inside["results"]),
        "windows": [one["window"] for one in windows],
        "hit": sum(one["hit"] for one in windows),
        "by_steps": sorted(by_steps),
        "by_windows": sorted(by_windows),
        "broken": broken,
        "same": by_steps == by_windows and not broken,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "commit": commit(),
    }


def _swept(home: Path, *what: str) -> dict[str, Any]:
    home.mkdir(parents=True, exist_ok=True)
    done = streamproof(home, "sweep", *what, "--json", timeout_s=SWEEP_S)
    if not done.stdout.strip():
        raise RuntimeError(f"sweep {' '.join(what)}: {done.stderr.strip()[-1000:]}")
    swept: dict[str, Any] = json.loads(done.stdout)
    return swept


def _anomalies(home: Path, run: str) -> set[str]:
    """What the run's verdict counts, what its guarantee allows too."""
    verdict = json.loads((home / "runs" / run / "verdict.json").read_text())
    return {anomaly for anomaly, count in (verdict.get("anomalies") or {}).items() if count}


def row(result: dict[str, Any]) -> str:
    seen = [", ".join(result[key]) or "nothing" for key in ("by_steps", "by_windows")]
    hit = f"{result['hit']} of {len(result['windows'])}"
    same = "yes" if result["same"] else "NO" + (f", {', '.join(result['broken'])}" if result["broken"] else "")
    return f"| `{result['strategy']}` | {seen[0]} | {seen[1]} | {hit} | {same} | {result['minutes']} |"


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
