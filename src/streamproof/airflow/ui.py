"""``make ui``: the testbed and Airflow, on this machine only and behind a login, until Ctrl-C. Nothing is left running then."""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from streamproof.airflow import service
from streamproof.airflow.service import DAG, NIGHTLY, Api
from streamproof.testbed import embedded
from streamproof.testbed.install import SetupError
from streamproof.testbed.process import TestbedError

LOOK_S = 2.0
TOLD = """
Airflow is at   {url}{listens}
user            {user}
password        {password}

Break a job:    {url}/dags/{dag}  ->  Trigger. Choose a preset, or fill in the form. The tasks' logs tell what is going on. When the
                run is over, the task `report` has links to its report, its Data Docs and its folder, below Details. Red: the verdict
                was not as expected.
All runs:       {url}/plugin/streaming-reliability, in the navigation.
Stop a run:     mark the DAG run failed. The testbed is restored, the verdict is ABORTED.
The nightly run:{url}/dags/{nightly}  ->  switch it on, and it runs by its schedule; Trigger runs it now.
                The task `summary` says what changed, and {home} holds each nightly run's page and JUnit XML.

Ctrl-C stops all of it.
"""


def say(line: str) -> None:
    print(line, flush=True)


def start() -> Api:
    """Airflow and the testbed, side by side."""
    with ThreadPoolExecutor(2) as pool:
        testbed, airflow = pool.submit(embedded.up, say), pool.submit(service.up, say)
        testbed.result()
        return airflow.result()


def stay(stopped: threading.Event) -> None:
    """Until somebody stops it. Raises TestbedError when a part of Airflow ends by itself."""
    while not stopped.wait(LOOK_S):
        dead = [role for role, state in service.status().items() if state != "up"]
        if dead:
            raise TestbedError(f"{', '.join(dead)} ended by itself: see the logs in {service.home()}")


def main() -> int:
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    begun = time.monotonic()
    try:
        url = service.address()
        api = start()
        for stopping in (signal.SIGINT, signal.SIGTERM):
            signal.signal(stopping, stop)
        listens = "" if url == api.url else f"  (the proxy finds it at {api.url})"
        # Where the output is kept somewhere, a password is no part of it.
        password = api.password if sys.stdout.isatty() else f"in {service.home() / 'passwords.json'}"
        nightly = service.home().parent / "nightly"
        say(TOLD.format(url=url, listens=listens, user=api.user, password=password, dag=DAG, nightly=NIGHTLY, home=nightly))
        say(f"ready after {time.monotonic() - begun:.0f} s")
        stay(stopped)
    except (TestbedError, SetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    finally:
        say("stopping Airflow and the testbed")
        service.down()
        embedded.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
