"""A job whose worker runs elsewhere: in a process tree that knows nothing of the run. The worker is started again when it dies.

python own_elsewhere.py worker|start FILE    FILE has the worker's id and pid
python own_elsewhere.py find FILE            prints them while it lives
python own_elsewhere.py gone ID              exits with 0 once that one is gone, with 1 while it lives
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def identity(pid: int) -> str:
    return f"{pid}@{psutil.Process(pid).create_time():.2f}"


def lives(known_as: str) -> bool:
    try:
        pid = int(known_as.partition("@")[0])
        return identity(pid) == known_as and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(file: Path) -> None:
    signal.signal(signal.SIGTERM, end)
    marks = ("STREAMPROOF_RUN", "STREAMPROOF_RUN_START", "STREAMPROOF_TESTBED")
    elsewhere = {name: value for name, value in os.environ.items() if name not in marks}
    while not ended:
        worker = subprocess.Popen([sys.executable, __file__, "worker", str(file)], env=elsewhere, start_new_session=True)
        file.with_suffix(".new").write_text(f"{identity(worker.pid)} {worker.pid}\n")
        file.with_suffix(".new").replace(file)
        while worker.poll() is None and not ended:
            signal.sigtimedwait([signal.SIGCHLD], 0.1)
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)


def work() -> None:
    from confluent_kafka import Consumer, Producer

    signal.signal(signal.SIGTERM, end)
    kafka = {"bootstrap.servers": os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"]}
    group = {"group.id": os.environ["STREAMPROOF_GROUP"], "session.timeout.ms": 6000, "group.instance.id": "the-worker"}
    consumer = Consumer({**kafka, **group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    producer = Producer(kafka)
    consumer.subscribe([os.environ["STREAMPROOF_INPUT_TOPIC"]])
    while not ended:
        messages = [message for message in consumer.consume(200, timeout=0.1) if message.error() is None]
        for message in messages:
            producer.produce(os.environ["STREAMPROOF_OUTPUT_TOPIC"], key=message.key(), value=message.value())
        if messages and producer.flush(60) == 0:
            consumer.commit(asynchronous=False)
    consumer.close()


def main(what: str, argument: str) -> int:
    if what == "start":
        start(Path(argument))
    elif what == "worker":
        work()
    elif what == "find":
        line = Path(argument).read_text() if Path(argument).exists() else ""
        if line and lives(line.split()[0]):
            print(line, end="")
    else:
        return 1 if lives(argument) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
