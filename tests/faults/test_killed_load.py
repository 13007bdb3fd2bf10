"""The load of a run is killed in its middle and repeated, as an Airflow task is: what the first one knew is not forgotten."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamproof.evidence import histories
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import LoadFinished, StageFinished
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.load import workload
from streamproof.load.spec import Source, Workload
from streamproof.run import stages
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import wait_until
from tests.support.checkout import ROOT

RECORDS = 20_000
PERFORMS = "import sys; from streamproof.evidence.folder import RunFolder; from streamproof.run import stages\n"
PERFORMS += "stages.perform(sys.argv[1], RunFolder(sys.argv[2]))"


@contextmanager
def _performing(stage: str, folder: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    """A stage in a process of its own, as an Airflow task is one. It is gone in the end."""
    process = subprocess.Popen([sys.executable, "-c", PERFORMS, stage, str(folder.path)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def _intended(folder: RunFolder) -> int:
    return sum(intent["count"] for intent in workload.intended(folder.intents))


@pytest.mark.slow
def test_a_load_that_was_killed_and_repeated_leaves_a_verdict_on_nearly_all_of_its_records(testbed: Testbed) -> None:
    load = Workload(source=Source.SYNTHETIC, records=RECORDS)
    experiment = Experiment(
        name="killed-load", strategy="checkpoint", workload=load, faults=[FaultSpec(fault="kill_executor", at=0.2)], seed=5
    )
    folder = stages.create(experiment)
    try:
        stages.perform("prepare", folder)
        with _performing("run_pipeline", folder) as job, _performing("inject_faults", folder) as faults:
            with _performing("generate_load", folder) as first:
                wait_until("most of the records to be sent", lambda: _intended(folder) > 0.6 * RECORDS, 120)
                first.send_signal(signal.SIGKILL)
                first.wait(10)
            stages.perform("generate_load", folder)
            assert (job.wait(120), faults.wait(120)) == (0, 0)
        for stage in ("drain", "verify", "expect"):
            stages.perform(stage, folder)
        verdict = folder.read_json(folder.verdict)
    finally:
        stages.perform("restore", folder)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    (finished,) = folder.journal.all(LoadFinished)
    assert finished.acked + finished.rejected + finished.indeterminate == RECORDS
    assert finished.indeterminate <= workload.MAX_CHUNK, "the chunk that was under way is all that is not known"
    assert verdict["sent"]["indeterminate"] == finished.indeterminate
    assert verdict["sent"]["indeterminate_share"] == round(finished.indeterminate / RECORDS, 6)
    assert [event.stage for event in folder.journal.all(StageFinished)].count("generate_load") == 1
    assert {path.suffix for path in folder.sent.iterdir()} == {".parquet", ".jsonl"}
    assert len(histories.read_sent(folder)) == RECORDS
