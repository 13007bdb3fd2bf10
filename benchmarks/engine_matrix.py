"""Each engine with each guarantee under the same faults, several seeds each: ``make engine-matrix``.

What is compared stands in ``chaos/engines/matrix.yaml``. Writes ``build/engine-matrix.json``: a list of ``{engine, guarantee, fault, seed,
outcome, reason, lost, duplicated, first_output_s, longest_gap_s, output_s, records_per_s_before, records_per_s_after}``, times in s, as
each run ends; a run that is there already is not run again (``--anew`` does). ``--table`` only prints what is there, as a table with the
median over the seeds and, where they differ, the smallest and the largest; ``--page`` writes that table and its picture to
``docs/engine-comparison.md`` and ``.svg``. Words choose engines and faults whose names hold one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import verdicts
from benchmarks.verdicts import ROOT

MATRIX = ROOT / "chaos" / "engines" / "matrix.yaml"
RESULTS = ROOT / "build" / "engine-matrix.json"
PAGE = ROOT / "docs" / "engine-comparison.md"
BEGIN, END = "<!-- measured: make engine-matrix -->", "<!-- end -->"
CELL = ("engine", "guarantee", "fault")
RUN_S = 900


def cells(matrix: dict[str, Any], only: Sequence[str] = ()) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is said of each run, and the document of its experiment."""
    for seed in matrix["seeds"]:
        for job in matrix["jobs"]:
            for name, spec in {**job["faults"], **matrix["faults"]}.items():
                said = {"engine": job["engine"], "guarantee": job["guarantee"], "fault": name, "seed": seed}
                if only and not any(word.lower() in f"{job['engine']} {name}".lower() for word in only):
                    continue
                fault = {"fault": spec} if isinstance(spec, str) else spec
                shared = {"workload": matrix["workload"], "timeout_s": matrix["timeout_s"], "seed": seed}
                yield said, {"name": "engine-matrix", **job["experiment"], **shared, "faults": [{**fault, "at": matrix["at"]}]}


def measured(experiment: dict[str, Any]) -> dict[str, Any]:
    """One run, and what its verdict says of it."""
    verdict, reason = verdicts.of_document(experiment, RUN_S)
    if verdict is None:
        return {"outcome": None, "reason": reason}
    phases = {name: (figures or {}).get("records_per_s") for name, figures in verdict["phases"].items()}
    return {
        "outcome": verdict["outcome"],
        "reason": reason,
        "lost": verdict["anomalies"].get("LOST"),
        "duplicated": verdict["anomalies"].get("DUPLICATED"),
        "first_output_s": verdict["recovery_s"],
        "longest_gap_s": verdict["longest_gap_s"],
        "output_s": verdict["output_s"],
        "records_per_s_before": phases.get("steady"),
        "records_per_s_after": phases.get("recovery"),
    }


def table(results: list[dict[str, Any]]) -> str:
    """A line for each engine, guarantee and fault: the median over its seeds, and the spread where there is one."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(tuple(result[key] for key in CELL), []).append(result)
    columns = ("lost", "duplicated", "first_output_s", "longest_gap_s", "records_per_s_before", "records_per_s_after")
    heads = ["first output, s", "longest gap, s", "records/s before", "and after"]
    lines = [f"| engine | guarantee | fault | runs | outcome | lost | duplicated | {' | '.join(heads)} |", "| --- " * 11 + "|"]
    for (engine, guarantee, fault), runs in groups.items():
        outcomes = ", ".join(sorted({str(run["outcome"]) for run in runs}))
        figures = [_spread([run[column] for run in runs if run.get(column) is not None]) for column in columns]
        lines.append(f"| {engine} | {guarantee} | {fault} | {len(runs)} | {outcomes} | {' | '.join(figures)} |")
    return "\n".join(lines)


def write_page(results: list[dict[str, Any]]) -> None:
    """The table and the picture on their page. Raises ValueError when the page has no place for them."""
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: expected {BEGIN} and {END}")
    draw(results, PAGE.with_suffix(".svg"))
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """How long each engine gives no output under each fault: a dot for each run, a bar for their median."""
    import altair

    rows = [
        {"who": f"{run['engine']}, {run['guarantee']}", "fault": run["fault"], "seconds": run["longest_gap_s"]}
        for run in results
        if run.get("longest_gap_s") is not None
    ]
    base = altair.Chart(altair.Data(values=rows)).encode(  # type: ignore[no-untyped-call]
        altair.X("seconds:Q", title="longest time without output, s"), altair.Y("who:N", title=None)
    )
    runs, middle = base.mark_point(filled=True, opacity=0.6), base.mark_tick(thickness=2, color="black").encode(x="median(seconds):Q")
    altair.layer(runs, middle).properties(width=230, height=190).facet(altair.Facet("fault:N", title=None), columns=3).save(str(path))


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    middle = f"{statistics.median(values):g}" if isinstance(values[0], int) else _short(statistics.median(values))
    return middle if min(values) == max(values) else f"{middle} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="engines or faults whose names hold one of these words")
    parser.add_argument("--anew", action="store_true", help="run also what is there already")
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--page", action="store_true", help="run nothing, write what is there to the documentation")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    if arguments.page:
        write_page(results)
        return 0
    if not arguments.table:
        _run(results, arguments.only, arguments.anew)
    print(table(results))
    return 0


def _run(results: list[dict[str, Any]], only: Sequence[str], anew: bool) -> None:
    chosen = list(cells(yaml.safe_load(MATRIX.read_text()), only))
    for number, (said, experiment) in enumerate(chosen, 1):
        there = [result for result in results if all(result[key] == value for key, value in said.items())]
        if there and not anew:
            continue
        begun = time.monotonic()
        result = {**said, **measured(experiment)}
        results[:] = [each for each in results if each not in there] + [result]
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        named = ", ".join(str(said[key]) for key in (*CELL, "seed"))
        print(f"{number} of {len(chosen)}  {named}: {result['outcome']}; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
