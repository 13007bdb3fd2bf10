"""How long the pages of a history of 10,000 runs take: ``make bench-history``.

A history of so many ``--runs`` is made up: nightly runs of every strategy under the same faults, which pass, fail and flake by chance. Each
page is made as Airflow serves it, from the store to the last byte, five times. Prints a table and writes ``build/bench-history.json``: a
list of {name, value, unit}.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from benchmarks.verdicts import ROOT
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.history import page
from streamproof.history.matrix import matrix
from streamproof.history.record import Run
from streamproof.history.store import Store, Wanted
from streamproof.verdict.decide import RunOutcome

RESULTS = ROOT / "build" / "bench-history.json"
ROUNDS = 5
FAULTS = ("kill_executor", "kill_driver", "cut_kafka", "network_latency", "add_partitions", "kill_kafka", "pause_executor", "lose_answer")
BEGUN = datetime(2026, 1, 1, 2, tzinfo=UTC)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder, Store(sa.URL.create("sqlite", database=str(Path(folder) / "history.db"))) as store:
        made = made_up(count)
        began = time.monotonic()
        store.record(*made)
        print(f"{count} runs of {len({run.cell for run in made})} cells recorded in {time.monotonic() - began:.1f} s")
        cell = made[-1].cell
        pages: dict[str, Callable[[], object]] = {
            "the matrix": lambda: page.html(matrix(store.runs()), lambda run: run.run, str),
            "a cell": lambda: page.cell_html(store.runs(Wanted(cell=cell)), lambda run: run.run, "./", ()),
            "what changed": lambda: matrix(store.runs()).changes,
        }
        figures = []
        for name, make in pages.items():
            took_s, worked_s = _medians_s(make)
            figures += [
                {"name": name, "value": round(took_s, 3), "unit": "s"},
                {"name": f"{name}, processor", "value": round(worked_s, 3), "unit": "s"},
            ]
            print(f"{name:>14}  {took_s:7.3f} s, of the processor {worked_s:.3f} s")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def made_up(count: int) -> list[Run]:
    """Nights of runs, one of each strategy under each fault."""
    rng, runs = random.Random(1), list[Run]()
    cells = [(strategy, fault) for strategy in STRATEGIES for fault in FAULTS]
    for number in range(count):
        strategy, fault = cells[number % len(cells)]
        began = BEGUN + timedelta(days=number // len(cells), seconds=30 * (number % len(cells)))
        chance = rng.random()
        outcome = RunOutcome.FAILED if chance < 0.03 else RunOutcome.INCONCLUSIVE if chance < 0.05 else RunOutcome.PASSED
        runs.append(_run(number, began, strategy, fault, outcome, rng))
    return runs


def _run(number: int, began: datetime, strategy: str, fault: str, outcome: RunOutcome, rng: random.Random) -> Run:
    from tests.support.remembered import RUN

    recovery_s = rng.uniform(1, 9)
    return replace(
        RUN,
        run=f"night-{number}",
        folder=f"/nowhere/night-{number}",
        began_at=began,
        strategy=strategy,
        guarantee=str(STRATEGIES[strategy].guarantee),
        faults=f"{fault}(count=1)",
        fault_names=(fault,),
        seed=number,
        outcome=outcome,
        reason="" if outcome == RunOutcome.PASSED else f"{strategy} broke it",
        recovery_s=recovery_s,
        caught_up_s=recovery_s + 1,
        output_s=rng.uniform(8, 20),
    )


def _medians_s(make: Callable[[], object]) -> tuple[float, float]:
    """How long it takes, and how much of the processor's time: on a busy machine the second says more."""
    taken, worked = [], []
    for _ in range(ROUNDS):
        begun, begun_work = time.monotonic(), time.process_time()
        make()
        taken.append(time.monotonic() - begun)
        worked.append(time.process_time() - begun_work)
    return statistics.median(taken), statistics.median(worked)


if __name__ == "__main__":
    sys.exit(main())
