"""Time to a verdict: one experiment, five times on a warm testbed; the median seconds of each step. ``python -m benchmarks.run``.

50,000 records, ``two_phase_commit``, ``kill_executor``. Prints a table and writes ``build/bench-run.json``: a list of {name, value, unit}.
``run_pipeline``, ``generate_load`` and ``inject_faults`` go on side by side: their times do not add up, ``in all`` is the whole.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from streamproof.evidence.journal import DriverReady, DriverStarted, StageFinished
from streamproof.experiment.form import Form
from streamproof.run import runner
from streamproof.testbed import embedded

RECORDS = 50_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="how often (default 5)")
    count = parser.parse_args().runs
    embedded.up(lambda line: print(line, flush=True))
    seconds: dict[str, list[float]] = {}
    for number in range(count):
        experiment = Form(strategy="two_phase_commit", fault="kill_executor", records=RECORDS, seed=number).experiment()
        begun = time.monotonic()
        folder = runner.run(experiment)
        whole = time.monotonic() - begun
        verdict = folder.read_json(folder.verdict)
        print(f"run {number + 1} of {count}: {verdict['outcome']} in {whole:.1f} s, {folder.path}", flush=True)
        if verdict["outcome"] != "PASSED":
            print(f"a run that does not pass is no measurement: {verdict['reason']}", file=sys.stderr)
            return 1
        for event in folder.journal.all(StageFinished):
            seconds.setdefault(event.stage, []).append(event.seconds)
        first = next(line for line in folder.journal.all(DriverReady))
        started = next(line for line in folder.journal.all(DriverStarted))
        seconds.setdefault("application up", []).append(_between(started.at, first.at))
        seconds.setdefault("in all", []).append(whole)
    figures = [{"name": name, "value": round(statistics.median(values), 2), "unit": "s"} for name, values in seconds.items()]
    for figure in figures:
        measured = seconds[str(figure["name"])]
        print(f"{figure['name']:>16}  {figure['value']:7.2f} s   ({min(measured):.2f} to {max(measured):.2f})")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-run.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _between(begin: str, end: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
