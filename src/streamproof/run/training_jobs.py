"""The driver of the set-up's small jobs: ``python -m streamproof.run.training_jobs FOLDER ...``.

Runs the job of each folder, all in one session, until it has delivered everything there is; each twice, so that it also starts from its
checkpoint once. Then it writes ``done`` into the first folder and waits for ``stop`` there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from streamproof.engines.spark import driver, kafka_to_kafka
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.evidence.folder import RunFolder

STARTS = 2
DONE = "done"
POLL_S = 0.1


def main() -> None:
    folders = [RunFolder(Path(folder)) for folder in sys.argv[1:]]
    session = driver.session(SparkJob.read(folders[0], 1))
    for folder in folders:
        for start in range(1, STARTS + 1):
            job = SparkJob.read(folder, start)
            strategy, pipeline = STRATEGIES[job.strategy], PIPELINES[job.pipeline]
            frame = kafka_to_kafka.read(session, job, strategy.starting_offsets(job))
            query = strategy.start(pipeline.transform(frame, job), job)
            query.processAllAvailable()
            _ = query.recentProgress  # as a driver reads it
            query.stop()
            strategy.recover(job)
    (folders[0].path / DONE).touch()
    while not (folders[0].path / "stop").exists():
        time.sleep(POLL_S)
    session.stop()


if __name__ == "__main__":
    main()
