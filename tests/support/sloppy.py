"""A job that is brought in with something wrong with it: ``sloppy.py MISTAKE``. Without a mistake it is a plain consume-produce loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer

MISTAKE = (sys.argv[1:] or ["none"])[0]


def main() -> None:
    if MISTAKE == "ends":
        print("nothing to do")
        sys.exit(0)
    if MISTAKE == "variable":
        print(os.environ["ORDERS_TOPIC"])
    if MISTAKE == "package":
        import a_package_that_is_not_there  # noqa: F401
    if MISTAKE == "forks":
        subprocess.Popen([sys.executable, __file__, "after its parent"])
        time.sleep(0.5)
        sys.exit(0)
    if MISTAKE == "after its parent":  # else it may be through before that has ended
        time.sleep(2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if MISTAKE == "never connects":
        while True:
            time.sleep(0.1)
    loop()


def loop() -> None:
    servers, group = os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"], os.environ["STREAMPROOF_GROUP"]
    if MISTAKE == "round the proxies":
        servers = os.environ["DIRECT"]
    if MISTAKE == "own group":
        group = "orders"
    source = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    sink = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    source.subscribe([os.environ["STREAMPROOF_INPUT_TOPIC"]])
    while True:
        messages = [message for message in source.consume(100, 0.1) if message.error() is None]
        for message in messages:
            value = message.value()
            if MISTAKE == "identity":
                value = json.dumps({"order": json.loads(value)["payload"]}).encode()
            if MISTAKE != "delivers nothing":
                sink.produce(os.environ["STREAMPROOF_OUTPUT_TOPIC"], value, message.key())
        sink.flush(10)
        if messages:
            source.commit(asynchronous=False)


main()
