"""The demonstration, ``make demo``: real streaming jobs are broken and judged, one DAG run after the other, triggered over Airflow's API.

Three strategies meet a killed executor, two-phase commit meets two more faults, and one row is a negative control: a driver that is killed
between output and offset commit *must* be caught duplicating. Exit code 0 only if every row came out as expected.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamproof import settings
from streamproof.airflow import service
from streamproof.airflow.service import Api
from streamproof.evidence.folder import RunFolder, utc_now
from streamproof.evidence.journal import InjectionStarted, PhaseBegan, StageStarted
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import MAX_SEED
from streamproof.testbed import embedded, hosts
from streamproof.testbed.install import SetupError
from streamproof.testbed.process import TestbedError
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.verdict import Verdict

RECORDS = 20_000
ROW_S = 420.0
POLL_S = 0.5
ROWS = (
    ("checkpoint", "kill_executor"),
    ("offset_commit", "kill_executor"),
    ("two_phase_commit", "kill_executor"),
    ("two_phase_commit", "network_latency"),
    ("two_phase_commit", "add_partitions"),
    ("offset_commit", "crash_at_step"),
)
HEAD = ("strategy", "fault", "evidence", "sent", "lost", "duplicated", "guarantee", "outcome", "recovery")
COLOURS = {"PASSED": "green", "FAILED": "red", "INCONCLUSIVE": "yellow", "ERROR": "magenta", "ABORTED": "blue"}


@dataclass
class Row:
    """One DAG run of the demonstration."""

    strategy: str
    fault: str
    seed: int
    run_id: str
    state: str = "waiting"
    doing: str = ""
    seconds: float = 0.0
    verdict: Verdict | None = None

    @property
    def folder(self) -> RunFolder:
        return RunFolder(settings.runs() / self.run_id)

    @property
    def as_expected(self) -> bool:
        return self.state == "success" and self.verdict is not None and self.verdict.as_expected

    def cells(self) -> list[str]:
        """The row of the table, as it stands."""
        verdict = self.verdict
        if verdict is None:
            return [self.strategy, self.fault, self.doing or self.state, *[""] * 6]
        checks = [check.passed for injection in verdict.injections for check in injection.evidence]
        anomalies = verdict.anomalies
        recovery = verdict.recovery_s
        caught = " (as expected)" if verdict.expected_anomalies and verdict.as_expected else ""
        return [
            self.strategy,
            self.fault,
            f"{sum(checks)} of {len(checks)} checks passed",
            str(verdict.sent.acked + verdict.sent.rejected + verdict.sent.indeterminate if verdict.sent is not None else 0),
            str(anomalies.get(Anomaly.LOST, "-")),
            f"{anomalies.get(Anomaly.DUPLICATED, '-')}{caught}",
            verdict.guarantee,
            verdict.outcome if self.state == "success" or not verdict.as_expected else f"{verdict.outcome}, DAG {self.state}",
            f"{recovery:.1f} s" if recovery is not None else "-",
        ]


class Demo:
    def __init__(self, rows: list[Row], console: Console) -> None:
        self.rows, self.console = rows, console
        self.begun = time.monotonic()

    def say(self, line: str) -> None:
        self.console.print(f"{time.monotonic() - self.begun:6.1f} s  {line}", soft_wrap=True, highlight=False)

    def start(self) -> Api:
        """Airflow and the testbed, side by side."""
        with ThreadPoolExecutor(2) as pool:
            testbed = pool.submit(embedded.up, self.say)
            airflow = pool.submit(service.up, self.say)
            testbed.result()
            return airflow.result()

    def run(self, api: Api) -> None:
        with self._shown() as refresh:
            for row in self.rows:
                try:
                    self._one(api, row, refresh)
                except KeyboardInterrupt:
                    self.say(f"stopping {row.run_id}")
                    api.mark_failed(row.run_id)
                    self._finish(api, row)
                    raise

    def _one(self, api: Api, row: Row, refresh: Any) -> None:
        begun = time.monotonic()
        self.say(f"{row.strategy} x {row.fault}, seed {row.seed}: DAG run {row.run_id}")
        conf = {"strategy": row.strategy, "fault": row.fault, "workload": "flights", "records": RECORDS, "seed": row.seed}
        api.trigger(row.run_id, conf)
        progress, last = Progress(row.folder), ""
        while row.state not in ("success", "failed"):
            if time.monotonic() - begun > ROW_S:
                self.say(f"{row.run_id} is not through after {ROW_S:.0f} s; giving it up")
                api.mark_failed(row.run_id)
                self._finish(api, row)
                break
            row.state = api.state(row.run_id)
            row.doing = _doing(row.folder, progress)
            row.seconds = time.monotonic() - begun
            if row.doing != last and not self.console.is_terminal:
                self.say(f"  {row.doing}")
                last = row.doing
            refresh()
            time.sleep(POLL_S)
        self._judge(row)
        refresh()
        judged = (row.verdict.outcome, row.verdict.reason) if row.verdict is not None else None
        outcome, reason = judged or ("no verdict", "see the task logs in Airflow")
        self.say(f"  {outcome} in {row.seconds:.0f} s: {reason}")

    def _finish(self, api: Api, row: Row) -> None:
        """Wait until the teardown of a run that was given up has restored the testbed."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and api.tasks(row.run_id).get("restore") not in ("success", "failed"):
            time.sleep(POLL_S)
        row.state = api.state(row.run_id)

    def _judge(self, row: Row) -> None:
        if row.folder.verdict.exists():
            row.verdict = Verdict.read(row.folder)

    @contextmanager
    def _shown(self) -> Iterator[Any]:
        """On a terminal the table stands below the lines and changes as the runs go on."""
        if not self.console.is_terminal:
            yield lambda: None
            return
        with Live(self.table(), console=self.console, refresh_per_second=4) as live:
            yield lambda: live.update(self.table())

    def table(self) -> Table:
        table = Table(*HEAD)
        for row in self.rows:
            cells = [Text(cell) for cell in row.cells()]
            cells[7].stylize(COLOURS.get(row.verdict.outcome, "") if row.verdict is not None else "")
            table.add_row(*cells)
        return table


def _doing(folder: RunFolder, progress: Progress) -> str:
    """What the run is at, from its folder."""
    if not folder.path.is_dir():
        return "waiting for Airflow"
    event = folder.journal.last(PhaseBegan, StageStarted, InjectionStarted)
    if event is None:
        return "created"
    if isinstance(event, StageStarted):
        return event.stage
    what = event.injection if isinstance(event, InjectionStarted) else event.phase if isinstance(event, PhaseBegan) else ""
    return f"{what}, {progress.committed():,} committed"


def _json(verdict: Verdict | None) -> dict[str, Any]:
    return verdict.to_json() if verdict is not None else {}


def markdown(rows: list[Row]) -> str:
    """The table for a README."""
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD), *(" | ".join(row.cells()) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _rows(only: list[str], base: int) -> list[Row]:
    stamp = utc_now().replace(":", "").replace("-", "")[:15]
    rows = []
    for number, (strategy, fault) in enumerate(ROWS, 1):
        if not only or f"{strategy}:{fault}" in only or str(number) in only:
            rows.append(Row(strategy, fault, (base + number) % MAX_SEED, f"demo-{stamp}-{number}-{strategy}-{fault}".replace("_", "-")))
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m streamproof.airflow.demo", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="a row's number or strategy:fault; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the rows and end")
    parser.add_argument("--seed", type=int, help="seed of the first row, counted up; drawn when absent")
    parser.add_argument("--once", action="store_true", help="stop everything at the end, also on a terminal")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown too")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for number, (strategy, fault) in enumerate(ROWS, 1):
            print(f"{number}  {strategy}:{fault}")
        return 0
    base = arguments.seed if arguments.seed is not None else secrets.randbelow(MAX_SEED - len(ROWS))
    rows = _rows(arguments.only, base)
    if not rows:
        print(f"error: --only {' '.join(arguments.only)}: there is no such row; `--list` shows them", file=sys.stderr)
        return 2
    console = Console(markup=False, emoji=False)  # a path or an error is shown as it is
    console.print(f"seed {base}")
    demo = Demo(rows, console)
    stay = console.is_terminal and not arguments.once
    try:
        api = demo.start()
        if console.is_terminal:
            _say_where(console, api)
        demo.run(api)
    except (TestbedError, SetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        stay = False
        return 3
    except KeyboardInterrupt:
        return 130
    finally:
        if not stay and hosts.stack() is None:  # a stack's containers go on
            service.down()
            embedded.down()
    _conclude(console, demo, arguments.markdown)
    if stay:
        _say_where(console, api)
    return 0 if all(row.as_expected for row in rows) else 1


def _conclude(console: Console, demo: Demo, as_markdown: bool) -> None:
    if not console.is_terminal:
        console.width = 160
        console.print(demo.table())
    for row in demo.rows:
        console.print(f"{row.strategy} x {row.fault}: {row.folder.report}", soft_wrap=True, highlight=False)
    if as_markdown:
        print(markdown(demo.rows))
    results = [
        {
            "run": row.run_id,
            "state": row.state,
            "seconds": round(row.seconds, 1),
            "verdict": row.verdict.to_json() if row.verdict is not None else {},
        }
        for row in demo.rows
    ]
    results_in = Path("build") if hosts.stack() is None else settings.home()  # a container writes nowhere else
    results_in.mkdir(exist_ok=True)
    (results_in / "demo.json").write_text(json.dumps(results, indent=1) + "\n")
    good = sum(row.as_expected for row in demo.rows)
    console.print(f"{good} of {len(demo.rows)} rows as expected, in {time.monotonic() - demo.begun:.0f} s", highlight=False)


def _say_where(console: Console, api: Api) -> None:
    console.print(f"Airflow: {service.address()}  user {api.user}  password {api.password}", soft_wrap=True, highlight=False)
    console.print("`make down` stops all of it", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
