"""What a report says first of a run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence import manifest
from streamproof.evidence.folder import read_json_lines
from streamproof.experiment.model import Experiment
from streamproof.report.report import render
from streamproof.verdict.judge import judge
from tests.support.histories import SPEC, Story

OWN = {"job": {"engine": "command", "command": ["{python}", "orders.py"], "promises": "exactly-once"}}
OURS = {"strategy": "two_phase_commit"}


@pytest.mark.parametrize(("job", "names"), [(OWN, ["Job"]), (OURS, ["Pipeline", "Commit strategy"])])
def test_a_job_of_ones_own_has_a_name_and_neither_a_pipeline_nor_a_strategy(job: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    lines = [{**line, "started_at": line["committed_at"]} for line in read_json_lines(folder.progress)]
    folder.progress.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.experiment.write_text(Experiment.model_validate({"name": "test", **job}).to_yaml())
    manifest.write(folder)
    folder.verdict.write_text(json.dumps(judge(folder, replace(SPEC, run="run")).verdict.to_json()))
    facts = re.findall(r"<dt>([^<]+)</dt>", render(folder).read_text())
    assert facts[: len(names) + 1] == [*names, "Guarantee"]
