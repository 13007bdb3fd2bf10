"""Many random schedules, one run each, on one warm testbed. ``python -m benchmarks.soak --seeds 1-20 --strategy two_phase_commit``.

Prints a line a run and a table at the end. Exit code 1 when a run did not pass or left something behind: a process, a toxic, an open or
prepared transaction, an armed failpoint, its topics or tables, the lock. ``--strategy`` may be repeated.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from streamproof.engines.spark.job import SparkJob
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, Random
from streamproof.experiment.schedule import Schedule
from streamproof.kafka.transactions import Coordinator
from streamproof.load.spec import Source, Workload
from streamproof.run import lock, runner
from streamproof.sinks.postgres import tables
from streamproof.sinks.postgres.tables import Tables
from streamproof.suites.evaluate import evaluate
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import marked
from streamproof.verdict.decide import RunOutcome

RECORDS, COUNT, TIMEOUT_S = 12_000, 6, 480
STRATEGIES = ("two_phase_commit", "postgres_ledger")


@dataclass(frozen=True)
class Soaked:
    strategy: str
    seed: int
    outcome: str
    reason: str
    left: list[str]
    faults: list[str]
    starts: int | None
    seconds: float
    run: str

    @property
    def well(self) -> bool:
        return self.outcome == RunOutcome.PASSED and not self.left


def experiment(strategy: str, seed: int, records: int = RECORDS, count: int = COUNT, *, overlaps: bool = True) -> Experiment:
    return Experiment(
        name=f"soak-{strategy.replace('_', '-')}-{seed}",
        strategy=strategy,
        workload=Workload(source=Source.SYNTHETIC, records=records),
        random=Random(count=count, overlaps=overlaps),
        seed=seed,
        timeout_s=TIMEOUT_S,
    )


def soak(experiment: Experiment) -> Soaked:
    """One run of a random experiment."""
    begun = time.monotonic()
    folder = runner.run(experiment, evaluate=evaluate)
    verdict = folder.read_json(folder.verdict)
    faults = [injection.fault for injection in Schedule.read(folder).injections]
    took, left = time.monotonic() - begun, leftovers(folder, embedded.up())
    outcome, reason, starts = verdict["outcome"], verdict["reason"], verdict["driver_starts"]
    return Soaked(experiment.strategy, experiment.seed, outcome, reason, left, faults, starts, took, str(folder.path))


def leftovers(folder: RunFolder, testbed: Testbed) -> list[str]:
    """What a run that is over left of itself: nothing, when all is well."""
    job = SparkJob.read(folder)
    left = [
        f"process {process.pid}" for mark in ("STREAMPROOF_RUN", "STREAMPROOF_EXECUTOR_OF") for process in marked(**{mark: folder.name})
    ]
    left += [f"toxic {toxic} on {proxy}" for proxy in testbed.links for toxic in testbed.proxies.toxics(proxy)]
    left += [f"proxy {proxy} is down" for proxy in testbed.links if not testbed.proxies.enabled(proxy)]
    left += [f"failpoint {path.name}" for path in folder.failpoints.glob("*") if path.suffix in (".armed", ".held")]
    with Coordinator(testbed.direct_kafka) as coordinator:
        left += [f"open transaction {transaction.transactional_id}" for transaction in coordinator.ongoing("")]
    cluster = Cluster(testbed.direct_kafka)
    left += [f"topic {topic}" for topic in (job.input_topic, job.output_topic) if cluster.partitions(topic)]
    with tables.connect(testbed.direct_postgres, autocommit=True) as connection:
        left += [f"prepared transaction {gid}" for gid in tables.prepared(connection, "")]
        schema = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", [Tables(job.name).schema])
        left += [f"schema {name}" for (name,) in schema.fetchall()]
    holder = lock.holder()
    return left + ([f"the lock, held by {holder.run}"] if holder is not None else [])


def _seeds(text: str) -> list[int]:
    """``3``, ``1-20`` or several of them with commas between."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def _line(soaked: Soaked) -> str:
    outcome = soaked.outcome if soaked.outcome == RunOutcome.PASSED else f"{soaked.outcome}: {soaked.reason}"
    left = f"; LEFT BEHIND: {', '.join(soaked.left)}" if soaked.left else ""
    return f"{soaked.strategy} seed {soaked.seed}: {outcome}{left} ({soaked.seconds:.0f} s, {', '.join(soaked.faults)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=_seeds, default=_seeds("1-20"), help="as in 1-20 or 3,7,9 (default 1-20)")
    parser.add_argument("--strategy", action="append", help=f"may be repeated (default {' and '.join(STRATEGIES)})")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of each run (default {RECORDS})")
    parser.add_argument("--count", type=int, default=COUNT, help=f"faults of each run (default {COUNT})")
    options = parser.parse_args()
    logging.getLogger("streamproof").setLevel(logging.WARNING)
    embedded.up(lambda line: print(line, flush=True))
    results: list[Soaked] = []
    for strategy in options.strategy or STRATEGIES:
        for seed in options.seeds:
            results.append(soak(experiment(strategy, seed, options.records, options.count)))
            print(_line(results[-1]), flush=True)
            if results[-1].outcome == RunOutcome.ABORTED:
                return 130
    print("| strategy | seed | outcome | left behind | driver starts | seconds | faults |\n| --- | --- | --- | --- | --- | --- | --- |")
    for result in results:
        cells = (result.strategy, result.seed, result.outcome, ", ".join(result.left) or "nothing", result.starts, f"{result.seconds:.0f}")
        print(f"| {' | '.join(map(str, cells))} | {', '.join(result.faults)} |")
    wrong = [result for result in results if not result.well]
    for result in wrong:
        print(f"{result.strategy} seed {result.seed}: {result.reason}; {Path(result.run) / 'report.html'}")
    print(f"{len(results) - len(wrong)} of {len(results)} passed and left nothing behind")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
