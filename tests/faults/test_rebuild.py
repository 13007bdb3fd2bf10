"""A testbed that cannot be brought back is built anew; the journal and the verdict say so, and the next run passes."""

from __future__ import annotations

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Restored, TestbedRebuilt
from streamproof.experiment.model import Experiment
from streamproof.load.spec import Source, Workload
from streamproof.run import runner, stages
from streamproof.suites.evaluate import Evaluation, evaluate
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import remembered
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict

FOUND = Experiment(name="rebuilt", strategy="two_phase_commit", workload=Workload(source=Source.SYNTHETIC, records=2400), seed=3)


def _evaluate_and_ruin_kafka(folder: RunFolder) -> Evaluation:
    """What a disk would do: Kafka dies after all was read, and what it left on the disk cannot be started from."""
    evaluation = evaluate(folder)
    handle = remembered("kafka", embedded.folder())
    process = handle.process() if handle else None
    assert process is not None
    process.kill()
    (embedded.folder() / "kafka-data" / "meta.properties").write_text("version=nonsense\n")
    return evaluation


@pytest.mark.slow
def test_a_testbed_that_cannot_be_brought_back_is_built_anew(testbed: Testbed) -> None:
    folder = runner.run(FOUND, evaluate=_evaluate_and_ruin_kafka)
    verdict = Verdict.read(folder).to_json()
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    (note,) = verdict["notes"]
    assert note.startswith("the testbed could not be brought back and was built anew (")
    (rebuilt,) = folder.journal.all(TestbedRebuilt)
    assert "kafka" in rebuilt.reason
    assert folder.journal.last(Restored) is not None
    assert set(embedded.status().values()) == {"up"}
    assert embedded.current() == testbed, "it has the addresses that it had"
    assert judge(folder, stages.run_spec(folder)).verdict.to_json()["notes"] == verdict["notes"]
    assert note.split(" (")[0] in folder.report.read_text()

    after = Verdict.read(runner.run(FOUND)).to_json()
    assert (after["outcome"], after["notes"]) == ("PASSED", [])
