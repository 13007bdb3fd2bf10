"""The fault of this project's own, on a real job."""

from __future__ import annotations

import pytest

from streamproof.experiment.model import load
from streamproof.run import runner, soak
from streamproof.testbed.embedded import Testbed
from tests.support.checkout import ROOT


@pytest.mark.slow
def test_a_driver_that_is_frozen_goes_on_and_no_record_is_lost(testbed: Testbed) -> None:
    folder = runner.run(load(ROOT / "chaos" / "freeze-driver.yaml"))
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert [check for injection in verdict["injections"] for check in injection["evidence"] if not check["passed"]] == []
    assert verdict["driver_starts"] == 1, "it was frozen, not ended"
    assert soak.leftovers(folder, testbed) == []
