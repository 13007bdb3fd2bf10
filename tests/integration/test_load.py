"""A load generator that is killed in the middle is followed by one that sends the rest: no event is sent twice, none is left out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos import steps
from chaos.experiment import Experiment, Source, Workload
from chaos.outputs.kafka import drain
from chaos.workload import Gate, intended
from delivery import history
from delivery.checker import check
from delivery.folder import RunFolder
from pipelines.job import Job
from testbed.embedded import Testbed
from testbed.process import wait_until
from testbed.settings import ROOT

RECORDS, FIRST_PART = 1000, 400
LOADS = "import sys; from chaos import steps; from delivery.folder import RunFolder; steps.generate_load(RunFolder(sys.argv[1]))"


@pytest.fixture
def folder(testbed: Testbed, topic: str, tmp_path: Path) -> RunFolder:
    """A run that is prepared, with ``topic`` as its input."""
    folder = RunFolder.create(tmp_path / "run")
    workload = Workload(source=Source.SYNTHETIC, records=RECORDS, partitions=2)
    folder.experiment.write_text(Experiment(strategy="checkpoint", workload=workload, seed=5).to_yaml())
    (folder.path / "deadline.json").write_text(json.dumps({"at": time.time() + 60}))
    Job("kafka_to_kafka", "checkpoint", "load", str(folder.path), testbed.driver_kafka, topic, topic, 100, 1, "", {}).write()
    return folder


def test_a_load_that_was_killed_goes_on_where_it_was_cut_off(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    Gate(folder).open_to(FIRST_PART)
    first = subprocess.Popen([sys.executable, "-c", LOADS, str(folder.path)], cwd=ROOT)
    try:
        wait_until("the first part to be sent", lambda: sum(each["count"] for each in intended(folder.intents)) == FIRST_PART, 30)
        wait_until("it to be in the topic", lambda: drain(folder, testbed.direct_kafka, topic, 10)["records"] == FIRST_PART, 30)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(10)

    Gate(folder).open_to(RECORDS)
    for _ in range(2):  # the second time there is nothing left to do
        steps.generate_load(folder)
    found = drain(folder, testbed.direct_kafka, topic, 10)
    assert found["records"] == RECORDS, "each event is there once"
    judged = check(history.read_sent(folder), history.read_delivered(folder))
    assert (judged.acked, judged.indeterminate, judged.findings) == (RECORDS - FIRST_PART, FIRST_PART, ())
    (finished,) = folder.journal.events("load_finished")
    assert (finished["acked"], finished["indeterminate"], finished["rejected"]) == (RECORDS - FIRST_PART, FIRST_PART, 0)
    delivered = history.read_delivered(folder)
    assert sorted(delivered.sequence.tolist()) == list(range(RECORDS))
