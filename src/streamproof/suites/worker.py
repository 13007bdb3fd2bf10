"""An evaluation in a process of its own, which imports Great Expectations while a run is still busy.

The protocol: the process is started, imports, reads one line from its standard input (the run's folder), evaluates it, prints one line of
JSON and ends. When its input ends without a line, it ends too: it never outlives the process that started it for long.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Any

from streamproof import settings
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.suites.evaluate import Evaluation, evaluate, warm_up

_END_S = 5.0
BYTES_PER_S = 500_000
"""How much of the histories a slow machine judges in a second; it may take so long in addition to ``timeout_s``."""


class WorkerError(Exception):
    """The evaluation's process died, did not answer in time, or could not evaluate. The message carries the end of its stderr."""


class EvaluationWorker:
    """One evaluation, prepared ahead. ``start`` returns at once; ``evaluate`` starts what was not started; ``close`` may be repeated."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[str] | None = None

    def start(self) -> None:
        """Start the process and let it import. A worker that runs already is left alone."""
        if self._process is not None:
            return
        environment = {**settings.environment(), "GX_ANALYTICS_ENABLED": "false", "PYTHONUNBUFFERED": "1"}
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamproof.suites.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment,
        )

    def evaluate(self, folder: RunFolder) -> Evaluation:
        """Evaluate a run; the worker ends with it. Raises EvidenceError where ``evaluate`` in this process would, else WorkerError."""
        self.start()
        assert self._process is not None
        allowed_s = self.timeout_s + sum(path.stat().st_size for path in folder.path.glob("*/*.parquet")) / BYTES_PER_S
        try:
            answer, _ = self._process.communicate(f"{folder.path}\n", timeout=allowed_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerError(f"the evaluation of {folder.name} did not end within {allowed_s:.0f} s{self._tail()}") from error
        else:
            return self._read(folder, answer)
        finally:
            self.close()

    def _read(self, folder: RunFolder, answer: str) -> Evaluation:
        assert self._process is not None
        try:
            document: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            code = self._process.returncode
            raise WorkerError(f"the evaluation of {folder.name} ended with code {code} and without an answer{self._tail()}") from error
        if "evidence_error" in document:
            raise EvidenceError(str(document["evidence_error"]))
        return Evaluation.from_dict(document)

    def _tail(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()[-5:]
        return f"; it said: {' | '.join(lines)}" if lines else ""

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        stderr, self._stderr = self._stderr, None
        if process is not None:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None and not stream.closed:
                    _close_quietly(stream)
            with contextlib.suppress(subprocess.TimeoutExpired):  # on a busy machine; what went wrong before is what is to be told
                process.wait(_END_S)
        if stderr is not None:
            stderr.close()

    def __enter__(self) -> EvaluationWorker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _close_quietly(stream: IO[str]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return  # what was left in the buffer has no reader any more


def main() -> int:
    """The process: standard output is kept for the answer alone, whatever a library prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warm_up()
    line = sys.stdin.readline().strip()
    if not line:
        return 0
    try:
        evaluation = evaluate(RunFolder(line)).to_dict()
    except EvidenceError as error:
        evaluation = {"evidence_error": str(error)}
    print(json.dumps(evaluation, default=str), file=answer, flush=True)
    sys.stderr.flush()
    os._exit(0)  # everything is written; taking the imported libraries apart would keep the caller waiting for most of a second


if __name__ == "__main__":
    sys.exit(main())
