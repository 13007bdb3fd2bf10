"""The catalogue of strategies: what each says of itself fits together, and a strategy from elsewhere can join."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.jobs.failpoint import Site
from tests.support.checkout import ROOT


def _listed(extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STREAMPROOF_STRATEGIES": extra}
    command = [sys.executable, "-m", "streamproof.cli.main", "strategies", "--json"]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_strategy_from_another_project_joins_by_the_environment() -> None:
    listed = json.loads(_listed("pipelines.foreach_batch:ForeachBatch").stdout)
    assert [found["name"] for found in listed] == [*STRATEGIES, "foreach_batch"]


@pytest.mark.parametrize("entry", ["nope", "no.such.module:Thing", "pipelines.foreach_batch:Thing"])
def test_what_is_no_strategy_is_named(entry: str) -> None:
    answer = _listed(entry)
    assert answer.returncode != 0
    assert entry in answer.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_a_crash_must_show_its_guarantee_allows(name: str) -> None:
    strategy = STRATEGIES[name]
    for point in strategy.failpoints:
        assert not (point.provokes | point.allows) & strategy.guarantee.forbidden, point.name


@pytest.mark.parametrize("name", STRATEGIES)
def test_doubles_name_steps_in_the_order_of_a_crash_and_its_recovery(name: str) -> None:
    strategy = STRATEGIES[name]
    sites = {point.name: point.at for point in strategy.failpoints}
    for first, then in strategy.doubles:
        assert sites[first] != Site.RECOVERY
        assert sites[then] != Site.WATCHED


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_step_of_recovery_is_crashed_by_a_double_fault(name: str) -> None:
    strategy = STRATEGIES[name]
    recovering = {point.name for point in strategy.failpoints if point.at == Site.RECOVERY}
    assert recovering <= {then for _, then in strategy.doubles}
