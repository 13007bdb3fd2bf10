"""``python -m streamproof.engines.storm.submit DONE COMMAND…``: hands the topology in, as soon as Nimbus takes it, and ends with that.

The file DONE says afterwards that Nimbus has it: a later start of the same Storm finds it there.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

WITHIN_S = 90.0
AGAIN_S = 1.0


def main() -> int:
    submitted, command = Path(sys.argv[1]), sys.argv[2:]
    if submitted.exists():
        return 0
    until = time.monotonic() + WITHIN_S
    while True:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0 or time.monotonic() > until:
            break
        time.sleep(AGAIN_S)
    if done.returncode == 0:
        submitted.touch()
    else:
        print(f"the topology was not taken: {(done.stdout + done.stderr)[-4000:]}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
