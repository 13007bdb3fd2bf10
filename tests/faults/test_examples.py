"""The examples: jobs of a user's own, judged as ``examples.yaml`` says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from examples import run
from streamproof.run import lock
from streamproof.testbed.embedded import Testbed
from tests.support.processes import of_runs

EXAMPLES = yaml.safe_load((run.HERE / "examples.yaml").read_text())


@pytest.mark.slow
@pytest.mark.timeout(run.RUN_S + run.PREPARE_S)
@pytest.mark.parametrize("example", EXAMPLES, ids=[example["example"] for example in EXAMPLES])
def test_an_example_is_judged_as_it_says(testbed: Testbed, example: dict[str, Any]) -> None:
    result = run.judged(example)
    assert result["right"], result
    assert lock.holder() is None
    assert of_runs() == [], "nothing of the job is left"
