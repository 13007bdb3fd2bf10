"""The tutorial, command by command, as somebody follows it: a project of their own, real runs, and the exit codes that the page names."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamproof import settings
from tests.support.checkout import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED_CODE = re.compile(r"# exit code (\d+)")
BLOCK_S = 900.0


@dataclass(frozen=True)
class Shell:
    """One shell for all blocks: each goes on with the variables and the folder that the block before it left."""

    home: Path

    def run(self, block: str) -> subprocess.CompletedProcess[str]:
        """A block in a shell that starts where the last one ended. It ends at the first command that fails, with its exit code."""
        state = self.home / "state"
        begin = f"source {state}" if state.exists() else f"cd {ROOT}"
        end = f'code=$?; {{ export -p; echo cd \\"$PWD\\"; }} > {state}; exit $code'
        script = f"trap '{end}' EXIT\n{begin}\nset -e\n{block}"
        return subprocess.run(["bash", "-c", script], env=self._environment(), capture_output=True, text=True, timeout=BLOCK_S, check=False)

    def _environment(self) -> dict[str, str]:
        """Only what anybody's shell has, and the downloads of this checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STREAMPROOF_", "PYTEST_"))}
        return {**kept, "HOME": str(self.home), "STREAMPROOF_CACHE": str(settings.cache())}


@pytest.fixture
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="streamproof-tutorial-") as name:  # a short path: PostgreSQL's socket lies below it
        used = Shell(Path(name).resolve())
        yield used
        if (used.home / "orders" / "streamproof.toml").exists():
            used.run("cd ~/orders && streamproof down")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_command_of_the_tutorial_does_what_the_page_says(shell: Shell) -> None:
    printed = []
    for block in BLOCK.findall(PAGE.read_text()):
        done = shell.run(block)
        expected = EXPECTED_CODE.search(block)
        assert done.returncode == int(expected[1] if expected else 0), f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        printed.append(done.stdout)
    everything = "\n".join(printed)
    assert _shown("plan") in everything, "the plan is the one that the page shows"
    assert "this job can be tested: streamproof run chaos/orders.yaml" in everything
    assert re.search(r"^FAILED: orders broke exactly-once: \d+ DUPLICATED$", everything, re.MULTILINE)
    assert _shown("PASSED") in everything
    assert "1 passed" in everything, "the test of the tutorial"
    assert (shell.home / "orders" / "junit.xml").read_text().count("<testcase") == 2


def _shown(begin: str) -> str:
    """The output block of the page that holds these words."""
    outputs = re.findall(r"^```text\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (output for output in outputs if output.startswith({"plan": "orders:", "PASSED": "PASSED:"}[begin]))
    return str(found)
