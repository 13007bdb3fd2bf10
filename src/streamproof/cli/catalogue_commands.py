"""``streamproof faults``, ``strategies``, ``pipelines``: what there is, from its own code."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.text import Text

from streamproof.cli.terminal import JsonOption, say
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.experiment import catalogue
from streamproof.faults import FAULTS
from streamproof.jobs.failpoint import Failpoint
from streamproof.verdict.guarantee import allowed, forbidden


def faults(as_json: JsonOption = False) -> None:
    """List the faults, from their own code."""
    listed = [catalogue.describe(name) for name in FAULTS]
    if as_json:
        print(json.dumps(listed, indent=1))
        return
    for fault in listed:
        say(Text.assemble((fault["name"], "bold"), f": {fault['summary']}"))
        say(f"  target: {fault['target']}")
        for name, about in fault["parameters"].items():
            say(f"  {name} = {about['default']}: {about['description']}")
        say(f"  can be injected into {_jobs_of(fault)}")


def _jobs_of(fault: dict[str, Any]) -> str:
    """The jobs that a fault can be injected into, in words."""
    every = len(fault["strategies"]) == len(STRATEGIES)
    jobs = ["every strategy"] if every else list(fault["strategies"])
    if (which := catalogue.own_jobs(fault)) is not None:
        jobs.append(f"a job of your own {which}".rstrip())
    return ", ".join(jobs) or "no job"


def strategies(as_json: JsonOption = False) -> None:
    """List the commit strategies: what each promises, which anomalies that forbids and allows, at which steps it can be crashed, and what a
    crash there must show, or may."""
    if as_json:
        print(json.dumps([_describe_strategy(name) for name in STRATEGIES], indent=1))
        return
    for strategy in STRATEGIES.values():
        promised = strategy.guarantee, strategy.promises
        kept = ", ".join([strategy.guarantee, *sorted(strategy.promises)])
        say(Text.assemble((strategy.name, "bold"), f" ({kept}): {strategy.summary}"))
        say(f"  forbids {', '.join(sorted(forbidden(*promised)))}; allows {', '.join(sorted(allowed(*promised))) or 'none'}")
        for point in strategy.failpoints:
            say(f"  {point.name} ({point.at}): {point.window}; a crash there {_shows(point)}")


def _shows(point: Failpoint) -> str:
    """What a crash at a step shows, in words."""
    parts = [f"{word} show {', '.join(sorted(kinds))}" for word, kinds in (("must", point.provokes), ("may", point.allows)) if kinds]
    return " and ".join(parts) or "shows no anomaly"


def _describe_strategy(name: str) -> dict[str, Any]:
    strategy = STRATEGIES[name]
    points = [
        {"name": p.name, "at": p.at, "window": p.window, "provokes": sorted(p.provokes), "allows": sorted(p.allows)}
        for p in strategy.failpoints
    ]
    return {
        "name": name,
        "guarantee": strategy.guarantee,
        "promises": sorted(strategy.promises),
        "forbidden": sorted(forbidden(strategy.guarantee, strategy.promises)),
        "allowed": sorted(allowed(strategy.guarantee, strategy.promises)),
        "summary": strategy.summary,
        "failpoints": points,
        "document": (sys.modules[type(strategy).__module__].__doc__ or "").strip(),
    }


def pipelines() -> None:
    """List the pipelines."""
    for name, pipeline in PIPELINES.items():
        say(Text.assemble((name, "bold"), f": {(sys.modules[type(pipeline).__module__].__doc__ or '').strip()}"))
