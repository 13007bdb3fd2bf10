"""Builds the documentation as a site, for ``make site``: build/site. A link, an anchor or a picture's text that is missing is an error.

What builds it (docs/site/requirements.lock) is installed once, in ``.venv-docs``: it shares nothing with what streamproof runs on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import bootstrap  # noqa: E402

ENVIRONMENT = ROOT / ".venv-docs"
LOCK = ROOT / "docs" / "site" / "requirements.lock"
STAMP = ENVIRONMENT / "requirements.lock"  # a copy of what is installed, written last
SITE = ROOT / "build" / "site"
INSTALL_S, BUILD_S = 600, 300


def install() -> None:
    """Put the packages of the lock in place, unless they are."""
    if STAMP.is_file() and STAMP.read_bytes() == LOCK.read_bytes():
        return
    uv = next((ROOT / ".streamproof" / "uv").glob("*/bin/uv"), None)
    if uv is None:
        raise bootstrap.Failure(f"uv: expected it in {ROOT / '.streamproof' / 'uv'}, found none. Run `make setup`.")
    _run("the environment .venv-docs", [uv, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT], INSTALL_S)
    python = ENVIRONMENT / "bin" / "python"
    _run("the packages of the site", [uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", LOCK], INSTALL_S)
    STAMP.write_bytes(LOCK.read_bytes())


def build(site: Path = SITE, checkout: Path = ROOT) -> None:
    """Write the site. MkDocs prints what is wrong with a page."""
    # Not `--quiet`: MkDocs would not count the warnings that a strict build is to end with.
    command = [ENVIRONMENT / "bin" / "python", "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", site]
    _run("the site", command, BUILD_S, checkout)
    (site / "404.html").unlink(missing_ok=True)  # it is for a web server, and names its files from the server's root


def _run(what: str, command: list[str | Path], timeout_s: float, folder: Path = ROOT) -> None:
    env = {**bootstrap.environment_of_children(), **bootstrap.settings_of_pip(), "NO_MKDOCS_2_WARNING": "1"}
    try:
        code = subprocess.run([os.fspath(word) for word in command], cwd=folder, env=env, timeout=timeout_s, check=False).returncode
    except subprocess.TimeoutExpired:
        raise bootstrap.Failure(f"{what}: did not end within {timeout_s:.0f} s. Run `make site` again.") from None
    if code:
        raise bootstrap.Failure(f"{what}: exit code {code}; its own words are above.")


def main() -> int:
    try:
        install()
        build()
    except bootstrap.Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(f"the site is in {SITE}: open {SITE / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
