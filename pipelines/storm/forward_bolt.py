"""A bolt in Python that passes on key and value of each tuple: ``python forward_bolt.py PAUSE_MS`` as Storm starts it.

It speaks Storm's multilang protocol: JSON documents over standard input and output, each followed by a line ``end``.
"""

import json
import os
import sys
import time
from pathlib import Path


def read() -> dict:
    lines = []
    while (line := sys.stdin.readline().rstrip("\n")) != "end":
        if not line:
            sys.exit(0)  # the worker is gone
        lines.append(line)
    return json.loads("\n".join(lines))


def send(message: dict) -> None:
    print(json.dumps(message), "end", sep="\n", flush=True)


def main(pause_s: float) -> None:
    begun = read()
    Path(begun["pidDir"], str(os.getpid())).touch()
    send({"pid": os.getpid()})
    while True:
        message = read()
        if not isinstance(message, dict):
            continue  # where a tuple went
        if message.get("stream") == "__heartbeat":
            send({"command": "sync"})
            continue
        *_, key, value = message["tuple"]
        time.sleep(pause_s)
        send({"command": "emit", "anchors": [message["id"]], "tuple": [key, value], "need_task_ids": False})
        send({"command": "ack", "id": message["id"]})


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000)
