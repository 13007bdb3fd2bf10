"""Does choosing what to try next find more situations than chance? ``make bench-explore``.

``streamproof explore`` runs on one job for so many ``--minutes``, once as it is and once with ``--chance``, both at the same time, each on
a testbed of its own: so both have the same machine. A situation is a window, the stage of the run, the message on its way and the fault.
Three repetitions, each with its own seed. Prints a table and writes ``build/bench-explore.json``: a list of ``{job, seed, minutes, chosen,
chance, ratio, chosen_runs, chance_runs, missed_by_chosen, missed_by_chance}``, where ``chosen`` and ``chance`` count situations.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.verdicts import ROOT, streamproof
from streamproof import settings

RESULTS = ROOT / "build" / "bench-explore.json"
JOB = "chaos/forward-exactly-once.yaml"
SEEDS = (1, 2, 3)
WINDOWS_S = 900.0  # the most that is waited for beside the minutes: the windows are found first, and the last run comes to its end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", default=JOB, help="a job, or an experiment with one, as YAML")
    parser.add_argument("--minutes", type=float, default=8.0, help="how long each of them tries")
    given = parser.parse_args()
    results = list[dict[str, Any]]()
    print("| seed | situations by choice | by chance | ratio | runs | never killed in |\n| --- | --- | --- | --- | --- | --- |")
    for seed in SEEDS:
        with ThreadPoolExecutor(2) as both:
            chosen, chance = both.map(lambda chance: explored(given.job, given.minutes, seed, chance=chance), (False, True))  # noqa: B023
        ratio = round(chosen["situations"] / chance["situations"], 2)
        runs, missed = [len(each["runs"]) for each in (chosen, chance)], [len(each["missed"]) for each in (chosen, chance)]
        results.append(
            {
                "job": given.job,
                "seed": seed,
                "minutes": given.minutes,
                "chosen": chosen["situations"],
                "chance": chance["situations"],
                "ratio": ratio,
                "chosen_runs": runs[0],
                "chance_runs": runs[1],
                "missed_by_chosen": missed[0],
                "missed_by_chance": missed[1],
            }
        )
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        windows = len(chosen["windows"])
        told = f"{missed[0]} and {missed[1]} of {windows} windows"
        print(f"| {seed} | {chosen['situations']} | {chance['situations']} | {ratio} | {runs[0]} and {runs[1]} | {told} |", flush=True)
    print(f"median ratio {statistics.median(each['ratio'] for each in results)}; {RESULTS}")
    return 0


def explored(job: str, minutes: float, seed: int, *, chance: bool) -> dict[str, Any]:
    """What one exploration found. Raises RuntimeError with its last words when it came to no end."""
    home = settings.home() / "explore" / ("chance" if chance else "chosen")
    asked = ["explore", job, "--minutes", str(minutes), "--seed", str(seed), "--no-shrink", "--json", *(["--chance"] if chance else [])]
    try:
        done = streamproof(home, *asked, timeout_s=minutes * 60 + WINDOWS_S)
    finally:
        streamproof(home, "testbed", "down", timeout_s=WINDOWS_S)
    if not done.stdout.strip():
        raise RuntimeError(f"{' '.join(asked)}: {done.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
