"""A Kafka that somebody else runs: a second testbed plays it. A run breaks what it may break there, and touches nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproof.evidence.journal import Restored
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from tests.support.checkout import ROOT

RECORDS = 4000


@pytest.fixture(scope="module")
def outside() -> Iterator[Testbed]:
    """Another testbed, in a state folder of its own."""
    home = Path(tempfile.mkdtemp(prefix="streamproof-outside-")).resolve()
    command, environment = [sys.executable, "-m", "streamproof.cli.main"], {**os.environ, "STREAMPROOF_HOME": str(home)}
    try:
        subprocess.run([*command, "testbed", "up"], cwd=ROOT, env=environment, timeout=120, check=True, stdout=subprocess.DEVNULL)
        yield Testbed.parse(json.loads((home / "testbed" / "state.json").read_text()))
    finally:
        subprocess.run([*command, "down"], cwd=ROOT, env=environment, timeout=60, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(home)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "strategy"), [("cut_kafka", "two_phase_commit"), ("network_latency", "offset_in_transaction")])
def test_a_run_breaks_what_it_may_and_touches_nothing_else(testbed: Testbed, outside: Testbed, fault: str, strategy: str) -> None:
    outside.proxies.add("postgres", "somebody-elses", "latency", "downstream", {"latency": 1})
    outside.proxies.add("kafka-driver", "somebody-elses", "latency", "downstream", {"latency": 1})
    addresses = {"direct": outside.direct_kafka, "driver": outside.driver_kafka, "executors": outside.executors_kafka}
    may_break = {"toxiproxy": f"127.0.0.1:{outside.toxiproxy_port}", "executors": ["kafka-executors"]}
    try:
        folder = runner.run(
            Experiment.model_validate(
                {
                    "name": "outside",
                    "strategy": strategy,
                    "testbed": "external",
                    "external": {"kafka": addresses, "may_break": may_break},
                    "workload": {"source": "synthetic", "records": RECORDS},
                    "faults": [{"fault": fault, "at": 0.3, "parameters": {"role": "executors"}}],
                    "seed": 9,
                }
            )
        )
        assert list(outside.proxies.toxics("postgres")) == list(outside.proxies.toxics("kafka-driver")) == ["somebody-elses"]
    finally:
        for name in outside.links:
            outside.proxies.reset(name)
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    restored = folder.journal.last(Restored)
    assert restored is not None
    assert Cluster(outside.direct_kafka).partitions(f"sp-{folder.name}.in") == 0, "the run's topics are gone"
    assert Cluster(testbed.direct_kafka).partitions(f"sp-{folder.name}.in") == 0
    topics = Cluster(testbed.direct_kafka)._admin.list_topics(timeout=10).topics
    assert not [name for name in topics if folder.name in name], "the embedded Kafka was not used"
