"""Time to a verdict: one experiment, five times on a warm testbed; the median seconds of each step. ``python -m benchmarks.run``.

50,000 records, ``two_phase_commit``, ``kill_executor``. ``run_pipeline``, ``generate_load`` and ``inject_faults`` go on side by side: their
times do not add up, ``in all`` is the whole.

After each run its peer: a bare Spark application that does the same batches on the same cluster, undisturbed, once as Spark comes
(``bare Spark``) and once with this testbed's flags for a quick start (``bare Spark, quick``). Machines differ, and one machine from hour to
hour: the ratio to the peer says more than the seconds.

Prints a table and writes ``build/bench-run.json``: a list of {name, value, unit, peer, ratio}; ``peer`` and ``ratio``, the median of the
runs' own, are there for what has one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from streamproof.engines.spark import settings as spark_settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverReady, DriverStarted, StageFinished
from streamproof.experiment.form import Form
from streamproof.experiment.model import Experiment
from streamproof.load import workload
from streamproof.run import runner
from streamproof.testbed import embedded, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

RECORDS = 50_000
BARE_S = 600.0
BARE, QUICK = "bare Spark", "bare Spark, quick"
SIZED = {
    *("spark.driver.host", "spark.driver.bindAddress", "spark.driver.memory", "spark.driver.extraClassPath"),
    *("spark.executor.memory", "spark.executor.cores", "spark.executor.extraClassPath", "spark.cores.max"),
    *("spark.ui.port", "spark.ui.showConsoleProgress"),
}
"""What the peer must have as a run has it: where it listens, its resources and its connector."""
FLAGS = {"spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="how often (default 5)")
    count = parser.parse_args().runs
    testbed = embedded.up(lambda line: print(line, flush=True))
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
        for name in (BARE, QUICK):
            seconds.setdefault(name, []).append(bare(testbed, experiment, folder, number, quick=name == QUICK))
    figures = [_figure(name, seconds) for name in seconds]
    for figure in figures:
        measured = seconds[figure["name"]]
        ratio = f"   {figure['ratio']:.2f} times {figure['peer']}" if "ratio" in figure else ""
        print(f"{figure['name']:>17}  {figure['value']:7.2f} s   ({min(measured):.2f} to {max(measured):.2f}){ratio}")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-run.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _figure(name: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    figure: dict[str, Any] = {"name": name, "value": round(statistics.median(seconds[name]), 2), "unit": "s"}
    peer = {"in all": BARE, "run_pipeline": QUICK}.get(name)
    if peer is None:
        return figure
    ratios = [one / other for one, other in zip(seconds[name], seconds[peer], strict=True)]
    return {**figure, "peer": peer, "ratio": round(statistics.median(ratios), 2)}


def bare(testbed: Testbed, experiment: Experiment, folder: RunFolder, number: int, *, quick: bool) -> float:
    """The seconds in which a bare Spark application does what the run's pipeline did. Raises RuntimeError when it does not do it all."""
    names = [f"bare-{time.time_ns()}-{number}.{end}" for end in ("in", "out")]
    cluster = Cluster(testbed.direct_kafka)
    cluster.create_topics(dict.fromkeys(names, experiment.workload.partitions))
    of_a_run = spark_settings.of_run(folder.path, STRATEGIES["two_phase_commit"], state=None)
    kept = SIZED | FLAGS if quick else SIZED
    with tempfile.TemporaryDirectory() as temporary:
        sent = RunFolder.create(Path(temporary) / "sent")
        sender = workload.Sender(sent, testbed.direct_kafka, names[0])
        sender.send(0, list(workload.events(experiment.workload, experiment.seed)), sender.partitions())
        asked = {
            "master": testbed.spark_master,
            "kafka": testbed.direct_kafka,
            "input": names[0],
            "output": names[1],
            "batch_records": experiment.micro_batch,
            "checkpoint": f"{temporary}/checkpoint",
            "spark": {key: of_a_run[key] for key in sorted(kept)},
        }
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.bare_spark", json.dumps(asked)],
            env=spark.driver_environment(testbed.spark_properties),
            capture_output=True,
            text=True,
            timeout=BARE_S,
            check=False,
        )
        took = time.monotonic() - begun
    delivered = sum(cluster.end_offsets(names[1], committed=True).values())
    cluster.delete_topics(names)
    if done.returncode != 0 or delivered != experiment.workload.records:
        raise RuntimeError(f"the bare application delivered {delivered} of {experiment.workload.records}: {done.stderr[-1000:]}")
    return took


def _between(begin: str, end: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
