"""Run every example, and hold each outcome against what ``examples.yaml`` says: ``make examples``.

Writes ``build/examples.json``: ``[{example, expected, outcome, right}]``. An example that cannot be prepared on this machine (no Go) has no
outcome, and is not right. Exit code 1 unless all are right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import yaml

from benchmarks import verdicts
from benchmarks.verdicts import ROOT
from streamproof.testbed import install

HERE = ROOT / "examples"
RESULTS = ROOT / "build" / "examples.json"
PREPARE_S = 600
RUN_S = 1800


def main(only: list[str]) -> int:
    examples = [
        each for each in yaml.safe_load((HERE / "examples.yaml").read_text()) if not only or any(word in each["example"] for word in only)
    ]
    results = []
    for number, example in enumerate(examples, 1):
        begun = time.monotonic()
        result = judged(example)
        results.append(result)
        word = "as expected" if result["right"] else f"NOT as expected ({result['expected']}): {result['reason']}"
        print(
            f"{number} of {len(examples)}  {result['example']}: {result['outcome']}, {word}; {time.monotonic() - begun:.0f} s", flush=True
        )
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    right = sum(result["right"] for result in results)
    print(f"{right} of {len(results)} as expected; {RESULTS}")
    return 0 if right == len(results) else 1


def judged(example: dict[str, Any]) -> dict[str, Any]:
    """One example, prepared and run."""
    file = (HERE / example["example"]).resolve()
    result = {"example": str(file.relative_to(ROOT)), "expected": example["expected"], "outcome": None, "right": False, "reason": ""}
    try:
        for command in example.get("prepare", ()):
            words = [_filled(word) for word in command]
            subprocess.run(words, cwd=file.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREPARE_S, check=True)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        return {**result, "reason": f"it could not be prepared: {getattr(error, 'stderr', None) or error}"}
    verdict, reason = verdicts.of(file, RUN_S)
    if verdict is None:
        return {**result, "reason": reason}
    right = verdict["outcome"] == example["expected"] and verdicts.found(verdict) == set(example.get("found", ()))
    return {**result, "outcome": verdict["outcome"], "right": right, "reason": reason}


def _filled(word: str) -> str:
    """Raises LookupError where the machine lacks it."""
    if word == "{go}":
        go = install.machine_go()
        if go is None:
            raise LookupError("there is no Go on this machine")
        return str(go)
    return sys.executable if word == "{python}" else word


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
