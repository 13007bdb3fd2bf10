"""The tutorial, command by command, as somebody follows it: a project of their own, real runs, and the exit codes that the page names.

Once in a checkout, once with nothing but the wheel.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import bootstrap
from streamproof import settings
from tests.support.checkout import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^(<!-- the wheel -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLS = 2
"""The first blocks of the page: in a checkout, and from the wheel."""
EXPECTED_CODE = re.compile(r"# exit code (\d+)")
BLOCK_S = 900.0


@dataclass(frozen=True)
class Shell:
    """One shell for all blocks: each goes on with the variables and the folder that the block before it left."""

    home: Path
    begins: Path = ROOT

    def run(self, block: str) -> subprocess.CompletedProcess[str]:
        """A block in a shell that starts where the last one ended. It ends at the first command that fails, with its exit code."""
        state = self.home / "state"
        begin = f"source {state}" if state.exists() else f"cd {self.begins}"
        end = f'code=$?; {{ export -p; echo cd \\"$PWD\\"; }} > {state}; exit $code'
        script = f"trap '{end}' EXIT\n{begin}\nset -e\n{block}"
        return subprocess.run(["bash", "-c", script], env=self._environment(), capture_output=True, text=True, timeout=BLOCK_S, check=False)

    def _environment(self) -> dict[str, str]:
        """Only what anybody's shell has, and the downloads of this checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STREAMPROOF_", "PYTEST_"))}
        return {**kept, **bootstrap.settings_of_pip(), "HOME": str(self.home), "STREAMPROOF_CACHE": str(settings.cache())}


@pytest.fixture
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="streamproof-tutorial-") as name:  # a short path: PostgreSQL's socket lies below it
        used = Shell(Path(name).resolve())
        yield used
        if (used.home / "orders" / "streamproof.toml").exists():
            used.run("cd ~/orders && streamproof down")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_command_of_the_tutorial_does_what_the_page_says_in_a_checkout(shell: Shell) -> None:
    _follow(shell, of_the_wheel=False)


@pytest.mark.slow
@pytest.mark.timeout(3600, func_only=True)
def test_every_command_of_the_tutorial_does_what_the_page_says_with_the_wheel(shell: Shell, dist: Path) -> None:
    _follow(replace(shell, begins=dist.parent), of_the_wheel=True)
    where = shell.run("command -v streamproof")
    assert where.stdout.strip() == str(shell.home / "streamproof" / "bin" / "streamproof")


def _follow(shell: Shell, of_the_wheel: bool) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    (ours,) = (block for wheel, block in blocks[:INSTALLS] if bool(wheel) is of_the_wheel)
    printed = []
    for block in [ours, *(block for _, block in blocks[INSTALLS:])]:
        done = shell.run(block)
        expected = EXPECTED_CODE.search(block)
        assert done.returncode == int(expected[1] if expected else 0), f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        printed.append(done.stdout)
    everything = "\n".join(printed)
    assert _plan() in everything, "the plan is the one that the page shows"
    assert "this job can be tested: streamproof run chaos/orders.yaml" in everything
    assert re.search(r"^FAILED: orders broke exactly-once: \d+ DUPLICATED$", everything, re.MULTILINE)
    assert re.search(
        r"^PASSED: orders_mended kept exactly-once for 12000 acknowledged records, killed in 2 of \d+ windows$", everything, re.MULTILINE
    )
    assert "1 passed" in everything, "the test of the tutorial"
    assert (shell.home / "orders" / "junit.xml").read_text().count("<testcase") == 2


def _plan() -> str:
    """As the page shows it."""
    outputs = re.findall(r"^```text\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (output for output in outputs if output.startswith("orders:"))
    return str(found)
