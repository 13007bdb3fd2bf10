"""The load generator and a real topic: killed in the middle it is followed by one that sends the rest; it does what faults order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import LoadFinished
from streamproof.experiment.model import Experiment
from streamproof.load import workload
from streamproof.load.gate import HOT_KEY, Gate, Orders
from streamproof.load.spec import Source, Workload
from streamproof.load.workload import intended
from streamproof.run import stages
from streamproof.sinks.kafka.drain import drain
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import wait_until
from streamproof.verdict.checks.records import check
from tests.support.checkout import ROOT
from tests.support.jobs import spark_job

RECORDS, FIRST_PART, BATCH = 1000, 400, 100
CHUNK = BATCH // 2
LOADS = """
import sys
from streamproof.evidence.folder import RunFolder
from streamproof.run import stages
stages.generate_load(RunFolder(sys.argv[1]))
"""


@pytest.fixture
def folder(testbed: Testbed, topic: str, tmp_path: Path) -> RunFolder:
    """A run that is prepared, with ``topic`` as its input."""
    folder = RunFolder.create(tmp_path / "run")
    load = Workload(source=Source.SYNTHETIC, records=RECORDS, partitions=2)
    folder.experiment.write_text(Experiment(strategy="checkpoint", workload=load, seed=5).to_yaml())
    (folder.path / "deadline.json").write_text(json.dumps({"at": time.time() + 60}))
    spark_job(folder, name="load", bootstrap=testbed.driver_kafka, input_topic=topic, output_topic=topic, batch_records=BATCH).write()
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
        stages.generate_load(folder)
    found = drain(folder, testbed.direct_kafka, topic, 10)
    assert found["records"] == RECORDS, "each event is there once"
    judged = check(histories.read_sent(folder), histories.read_delivered(folder))
    assert judged.indeterminate <= CHUNK, "what became of the chunks before the last one was written down"
    assert (judged.acked, judged.findings) == (RECORDS - judged.indeterminate, ())
    (finished,) = folder.journal.all(LoadFinished)
    assert (finished.acked, finished.indeterminate, finished.rejected) == (judged.acked, judged.indeterminate, 0)
    delivered = histories.read_delivered(folder)
    assert sorted(delivered.sequence.tolist()) == list(range(RECORDS))


def test_what_is_sent_twice_has_an_identity_each_time_and_is_to_be_delivered_twice(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    Orders(folder).give("twice", 1)
    Gate(folder).open_to(RECORDS)
    stages.generate_load(folder)
    drain(folder, testbed.direct_kafka, topic, 10)
    sent, delivered = histories.read_sent(folder), histories.read_delivered(folder)
    assert len(sent) == len(delivered) == 2 * RECORDS
    assert [sorted(sent.sequence[sent.producer == producer].tolist()) for producer in (0, 1)] == [list(range(RECORDS))] * 2
    assert check(sent, delivered).findings == ()
    (finished,) = folder.journal.all(LoadFinished)
    assert finished.acked == 2 * RECORDS
    assert workload.Sender(folder, testbed.direct_kafka, topic).number == 2, "the next sender has an identity of its own"


def test_most_records_go_to_the_partition_of_the_hot_key_until_the_order_is_withdrawn(
    testbed: Testbed, topic: str, folder: RunFolder
) -> None:
    orders, partition = Orders(folder), zlib.crc32(HOT_KEY.encode()) % 2
    orders.give("hot_share", 0.9)
    orders.withdraw("twice")
    Gate(folder).open_to(FIRST_PART)
    sending = Thread(target=stages.generate_load, args=(folder,))
    sending.start()
    wait_until("the first part to be sent", lambda: sum(each["count"] for each in intended(folder.intents)) == FIRST_PART, 30)
    orders.withdraw("hot_share")
    Gate(folder).open_to(RECORDS)
    sending.join(30)
    sent = histories.read_sent(folder)
    hot = sent.partition == partition
    assert hot[sent.sequence < FIRST_PART].mean() > 0.9
    assert hot[sent.sequence >= FIRST_PART].mean() < 0.7
    (file,) = histories.files(folder.sent)
    assert 0.8 < pq.read_table(file)["key"].to_pylist().count(HOT_KEY) / FIRST_PART < 1
