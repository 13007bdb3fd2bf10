"""The loop of ``pipelines/forward.py``, with one thing wrong: its times, its order, or that somebody writes when it is over.

python late_forward.py --event-times     each record has the time of an event of 2013
python late_forward.py --ahead           the same, and offsets are committed half a second before their output is written
python late_forward.py --executor S      S seconds after its end a process with the mark of an executor writes the last record again
python late_forward.py --stranger S      S seconds after its end, and then again and again, one without any mark does
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pipelines"))

import forward
from confluent_kafka import Consumer, Message, Producer

EVENT_MS = 1_357_000_000_000
AHEAD_S = 0.5
LATE = """
import base64, sys, time
from confluent_kafka import Producer
bootstrap, topic, key, value, wait, often = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
time.sleep(float(wait))
for _ in range(int(often)):
    producer.produce(topic, base64.b64decode(value), base64.b64decode(key), partition=0)
    producer.flush(5)
    time.sleep(0.1)
"""
last: list[bytes] = []


def write(sink: Producer, messages: list[Message]) -> None:
    for message in messages:
        value = forward.transform(message)
        last[:] = [message.key(), value]
        times = {"timestamp": EVENT_MS + message.offset()} if "--event-times" in sys.argv or "--ahead" in sys.argv else {}
        sink.produce(os.environ["STREAMPROOF_OUTPUT_TOPIC"], value, message.key(), **times)


def ahead(source: Consumer) -> None:
    sink = forward.producer()
    while not forward.ended:
        if messages := forward.read(source):
            source.commit(asynchronous=False)
            time.sleep(AHEAD_S)
            write(sink, messages)
            if sink.flush(10):
                raise RuntimeError("the output was not acknowledged")


def leave_behind(wait: str, often: int, **marks: str) -> None:
    """Start a process that outlives this one, with nothing of its environment but ``marks``."""
    record = [base64.b64encode(part).decode() for part in last]
    command = [sys.executable, "-c", LATE, os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"], os.environ["STREAMPROOF_OUTPUT_TOPIC"]]
    child = subprocess.Popen([*command, *record, wait, str(often)], env=marks, start_new_session=True, cwd="/")
    (Path(os.environ["STREAMPROOF_STATE_FOLDER"]) / "late.pid").write_text(str(child.pid))


def main() -> None:
    forward.write = write
    if "--ahead" in sys.argv:
        forward.at_least_once = ahead
    else:
        sys.argv.append("--transactions")
    forward.main()
    marks = {name: os.environ[name] for name in ("STREAMPROOF_TESTBED",)}
    if "--executor" in sys.argv:
        leave_behind(sys.argv[sys.argv.index("--executor") + 1], 1, STREAMPROOF_EXECUTOR_OF=os.environ["STREAMPROOF_RUN"], **marks)
    if "--stranger" in sys.argv:
        leave_behind(sys.argv[sys.argv.index("--stranger") + 1], 600)


if __name__ == "__main__":
    main()
