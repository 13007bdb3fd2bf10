"""A standby replica of Kafka Streams: what an instance that takes over has still to read of the changelog, with one and without."""

from __future__ import annotations

import json

import pytest

from benchmarks import engines, verdicts
from streamproof import settings
from streamproof.engines.kafka_streams.spec import KafkaStreamsSpec
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionInjected
from streamproof.testbed import install
from streamproof.testbed.embedded import Testbed


def _restored(experiment: str) -> int:
    """How many records of the changelog the instance read that lived on, in order to take over the tasks of the other."""
    assert KafkaStreamsSpec.jars is not None
    if install.problems_with(KafkaStreamsSpec.jars):
        pytest.skip("the engine is not set up: streamproof setup kafka_streams")
    verdict, reason = verdicts.of(engines.FOLDER / f"{experiment}.yaml", engines.RUN_S)
    assert verdict is not None, reason
    assert verdict["outcome"] == "PASSED", reason
    run = RunFolder.open(settings.runs() / verdict["run"])
    (injected,) = run.journal.all(InjectionInjected)
    killed = int(injected.target["lost"]["folder"].rpartition("-")[2])
    told = map(json.loads, (run.checkpoint / "state" / "restored.jsonl").read_text().splitlines())
    return sum(line["records"] for line in told if line["instance"] != killed)


@pytest.mark.timeout(900)
def test_with_a_standby_less_is_restored(testbed: Testbed) -> None:
    without = _restored("kafka-streams-state")
    assert without > 0, "without one the whole changelog of a task is read"
    assert _restored("kafka-streams-standby") < without / 2
