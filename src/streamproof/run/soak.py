"""Many random schedules, one run each, on one warm testbed: what ``streamproof soak`` does.

A run did well when it passed and left nothing behind: no process, toxic, open or prepared transaction, armed failpoint, topic, table, and
not the lock.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from streamproof.engines.spark.job import SparkJob
from streamproof.errors import BadInput
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
    return Soaked(experiment.label, experiment.seed, outcome, reason, left, faults, starts, took, str(folder.path))


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


def seeds(text: str) -> list[int]:
    """``3``, ``1-20`` or several of them with commas between. Raises BadInput."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise BadInput(f"seeds: expected numbers and ranges as in 1-20 or 3,7,9, came {text!r}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def line(soaked: Soaked) -> str:
    """One run in one line."""
    outcome = soaked.outcome if soaked.outcome == RunOutcome.PASSED else f"{soaked.outcome}: {soaked.reason}"
    left = f"; LEFT BEHIND: {', '.join(soaked.left)}" if soaked.left else ""
    return f"{soaked.strategy} seed {soaked.seed}: {outcome}{left} ({soaked.seconds:.0f} s, {', '.join(soaked.faults)})"


def table(results: list[Soaked]) -> list[str]:
    """All runs as a table in Markdown, then a line for each that did not pass or left something behind, then how many did well."""
    lines = [
        "| strategy | seed | outcome | left behind | driver starts | seconds | faults |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in results:
        cells = (each.strategy, each.seed, each.outcome, ", ".join(each.left) or "nothing", each.starts, f"{each.seconds:.0f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {', '.join(each.faults)} |")
    wrong = [each for each in results if not each.well]
    lines += [f"{each.strategy} seed {each.seed}: {each.reason}; {Path(each.run) / 'report.html'}" for each in wrong]
    return [*lines, f"{len(results) - len(wrong)} of {len(results)} passed and left nothing behind"]
