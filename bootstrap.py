"""Sets streamproof up from a bare Python and the package registries: ``make setup``, or ``python3 bootstrap.py``.

The steps, each pinned by hash: uv, the environment ``.venv``, its packages, the project itself, and ``streamproof setup``, which puts in
place what the testbed runs and tries it. Only the standard library is used, since nothing else is there yet.

It may be killed anywhere and called again. The environment counts as whole only while it holds the stamp that is written last and
removed before anything in it changes; one without a stamp is made anew, from uv's cache, because uv would take a half-written package
for an installed one. When all is in place a call only compares the stamp and asks the testbed, which takes well under a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "src"))  # what the set-up asks of the package itself needs the standard library alone
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "streamproof.json"
STATE = ROOT / ".streamproof"  # of this checkout, wherever the testbed keeps its own
PYTHON_OLDEST, PYTHON_NEWEST = (3, 11), (3, 13)
PYTHON_VERSION = ".".join(str(part) for part in sys.version_info[:3])
NEEDED_GB, NEEDED_AGAIN_GB = 4.0, 1.0
STEP_TIMEOUT_S = 1800.0
HEARTBEAT_S = 15.0
STEPS = 5
UNREACHABLE = r"failed to fetch|error sending request|dns error|connection (refused|reset)|timed out|newconnectionerror|max retries"


class Failure(Exception):
    """The set-up cannot go on. The message names the thing, what was expected, what came, and what to do."""


# ------------------------------------------------------------------------------------------------------ before it starts


def check_python() -> None:
    """Go on in a Python that fits: this one, or one found on PATH (then this call does not return)."""
    if PYTHON_OLDEST <= sys.version_info[:2] <= PYTHON_NEWEST:
        return
    for minor in range(PYTHON_OLDEST[1], PYTHON_NEWEST[1] + 1):
        other = shutil.which(f"python3.{minor}")
        if other and subprocess.call([other, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            os.execv(other, [other, str(Path(__file__).resolve())])
    raise Failure(
        f"Python: expected 3.{PYTHON_OLDEST[1]} to 3.{PYTHON_NEWEST[1]}, found {PYTHON_VERSION} ({sys.executable}). "
        "Install one of them, or name it: make setup PYTHON=/path/to/python."
    )


def check_system() -> None:
    if not sys.platform.startswith(("linux", "darwin")):
        raise Failure(f"operating system: expected Linux or macOS, found {sys.platform}. On Windows use WSL 2.")


def check_disk(folder: Path, needed_gb: float) -> None:
    while not folder.exists():
        folder = folder.parent
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < needed_gb:
        raise Failure(
            f"disk: expected {needed_gb:.0f} GB free at {folder}, found {free_gb:.1f} GB. "
            "Free some there. STREAMPROOF_HOME puts the testbed's state on another disk, and a checkout elsewhere the environment."
        )


# ------------------------------------------------------------------------------------------------------------- commands


def environment_of_children() -> dict[str, str]:
    """What uv, pip and the testbed's set-up get: the caller's settings, without those that point into another Python."""
    env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}}
    env.setdefault("UV_HTTP_TIMEOUT", "120")
    env.setdefault("UV_SYSTEM_CERTS", "true")
    env["UV_PYTHON_DOWNLOADS"] = "never"
    return env


CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")  # of uv and Go; of the download of jars


def settings_of_pip() -> dict[str, str]:
    """A mirror or a certificate that pip is set to use, by a file or by the environment, is used by uv, Go and the download of jars too.

    Where one of them has a certificate of its own, all that have none use the same.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    of_pip = {name.replace("_", "-").lower(): value for name, value in re.findall(r"^[^.\n]+\.([\w-]+)='(.*)'$", listed, re.MULTILINE)}
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
    settings = {variable: of_pip[name] for name, variable in names.items() if of_pip.get(name) and variable not in os.environ}
    if "UV_INDEX_URL" in os.environ:
        settings.pop("UV_DEFAULT_INDEX", None)
    certificates = [of_pip.get("cert"), *(os.environ.get(variable) for variable in ("PIP_CERT", *CERTIFICATE_VARIABLES))]
    certificate = next(filter(None, certificates), None)
    if certificate is not None:
        settings |= {variable: certificate for variable in CERTIFICATE_VARIABLES if not os.environ.get(variable)}
    return settings


class Setup:
    """One call's progress: numbered steps with elapsed time, commands whose full output goes to a log, one error at most."""

    def __init__(self, log: Path, lock: IO[str]) -> None:
        self.log = log
        self.lock = lock
        self.began = time.monotonic()
        self.number = 0
        self.environment = {**environment_of_children(), **settings_of_pip()}

    def step(self, what: str) -> None:
        self.number += 1
        print(f"[{self.number}/{STEPS}] {time.monotonic() - self.began:4.0f} s  {what}", flush=True)

    def run(self, what: str, command: list[str], *, show: bool = False) -> str:
        """Run ``command``; its output goes to the log (``show``: to the terminal). Raises Failure that explains what it said.

        The command inherits the set-up's lock: should this process be killed, the next set-up waits until the command has ended.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a+") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            start = log.tell()
            output = None if show else log
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[self.lock.fileno()],
                start_new_session=True,
            )
            try:
                code = self._wait(child, what, quiet=show)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGTERM)
                    child.wait(timeout=30)
            log.seek(start)
            log_text = log.read()
        if code and show:
            raise Failure("")  # it has said it already
        if code:
            raise Failure(explain(what, code, log_text, self.log))
        return log_text

    def _wait(self, child: subprocess.Popen[bytes], what: str, *, quiet: bool) -> int:
        began = time.monotonic()
        while True:
            try:
                return child.wait(timeout=HEARTBEAT_S)
            except subprocess.TimeoutExpired:
                elapsed = time.monotonic() - began
                if elapsed > STEP_TIMEOUT_S:
                    raise Failure(
                        f"{what}: did not end within {STEP_TIMEOUT_S:.0f} s. See {self.log}, then run `make setup` again."
                    ) from None
                if not quiet:
                    print(f"      still at work ({elapsed:.0f} s)", flush=True)


def explain(what: str, code: int, output: str, log: Path) -> str:
    """One message from the output of an installer that failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    tail = "\n  ".join(lines[-8:])
    lower = output.lower()
    if re.search(r"hash mismatch|do not match the hashes", lower):
        cause = "a package is not the one that was locked (wrong checksum). Restore the lock files, or find out what your index serves"
    elif "no space left" in lower:
        cause = "the disk is full. Free about 4 GB"
    elif re.search(UNREACHABLE, lower):
        cause = "the package registry could not be reached. Check the network, the proxy and pip's index setting"
    else:
        cause = "the installer failed. Its own words follow"
    return (
        f"{what}: {cause}, then run `make setup` again: it goes on where it stopped.\n"
        f"  Exit code {code}; its whole output is in {log}; it ended with:\n  {tail}"
    )


# ---------------------------------------------------------------------------------------------------------------- steps


def fingerprint() -> str:
    """Changes when the environment has to change: the locks, what describes the project, and the Python that runs this."""
    files = [*sorted(ROOT.glob("requirements*.lock")), ROOT / "pyproject.toml"]
    digests = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join([sys.version, str(ROOT), *digests]).encode()).hexdigest()


def stamped() -> dict[str, object]:
    """What the stamp holds; empty when the environment is not whole."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and os.access(PYTHON, os.X_OK) else {}


def in_place() -> bool:
    if stamped().get("fingerprint") != fingerprint():
        return False
    from streamproof.testbed import java

    if not java.archive("stamp").with_suffix(".txt").exists():
        return False
    verify = [str(PYTHON), "-m", "streamproof.testbed.install"]
    return subprocess.run(verify, cwd=ROOT, env=environment_of_children(), stdout=subprocess.DEVNULL, check=False).returncode == 0


def get_uv(setup: Setup) -> Path:
    """uv from its locked wheel, in a folder of its own. pip checks the hash; it needs no environment for that."""
    lock = ROOT / "requirements-uv.lock"
    folder = STATE / "uv" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    uv = folder / "bin" / "uv"
    if uv.is_file():
        return uv
    shutil.rmtree(folder.parent, ignore_errors=True)
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    options = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        setup.run("uv", [sys.executable, "-m", "pip", *options, "--target", str(fresh)])
    else:
        private = fresh / "pip"
        venv = subprocess.run([sys.executable, "-m", "venv", str(private)], capture_output=True, text=True, check=False)
        if venv.returncode:
            raise Failure(
                f"pip: expected it in {sys.executable} or through the venv module, found neither. "
                "Install them (on Debian and Ubuntu: the packages python3-pip and python3-venv), then run `make setup` again."
            )
        setup.run("uv", [str(private / "bin" / "python"), "-m", "pip", *options, "--target", str(fresh)])
    os.replace(fresh, folder)
    return uv


def make_environment(setup: Setup, uv: Path) -> None:
    stamp = stamped()
    if stamp.get("python") == PYTHON_VERSION and stamp.get("root") == str(ROOT):
        return
    setup.run("the environment .venv", [str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)])


def install_packages(setup: Setup, uv: Path, locks: list[str]) -> None:
    build = ["--build-constraints", "requirements-build.lock"]
    python = ["--python", str(PYTHON), "--quiet"]
    STAMP.unlink(missing_ok=True)
    setup.run("the packages", [str(uv), "pip", "sync", *python, "--require-hashes", "--compile-bytecode", *build, *locks])
    setup.step("the project itself, as the command .venv/bin/streamproof")
    setup.run("streamproof", [str(uv), "pip", "install", *python, "--no-deps", *build, "--editable", "."])
    stamp = {"fingerprint": fingerprint(), "python": PYTHON_VERSION, "root": str(ROOT), "locks": locks}
    fresh = STAMP.with_suffix(".new")
    fresh.write_text(json.dumps(stamp, indent=1))
    os.replace(fresh, STAMP)


def set_up() -> None:
    # These two use the standard library alone; they are imported here because an older Python could not even read them.
    from streamproof import settings
    from streamproof.testbed import install

    def say(line: str) -> None:
        print(f"      {line}", flush=True)

    with ExitStack() as held:
        try:
            lock = held.enter_context(install.only_one(STATE / "setup.lock", say))
        except install.SetupError as error:
            raise Failure(str(error)) from error
        if in_place():  # another set-up did it meanwhile
            print("set-up: in place", flush=True)
            return
        check_disk(ROOT, NEEDED_AGAIN_GB if stamped() else NEEDED_GB)
        check_disk(settings.cache(), NEEDED_AGAIN_GB)
        setup = Setup(STATE / "setup.log", lock)
        setup.log.unlink(missing_ok=True)
        setup.step("uv, which installs the packages")
        uv = get_uv(setup)
        setup.step(f"the environment .venv for Python {PYTHON_VERSION}")
        make_environment(setup, uv)
        locks = ["requirements.lock"]
        if install.machine_java() is None:
            locks.append("requirements-java.lock")
        if install.machine_go() is None and (install.needs_go() or "requirements-go.lock" in str(stamped().get("locks"))):
            locks.append("requirements-go.lock")
        extra = "".join({"requirements-java.lock": ", with a Java", "requirements-go.lock": ", with a Go"}.get(lock, "") for lock in locks)
        setup.step(f"{len(re.findall(r'^[a-z0-9]', (ROOT / locks[0]).read_text(), re.MULTILINE))} packages{extra}")
        if stamped().get("fingerprint") != fingerprint() or stamped().get("locks") != locks:
            install_packages(setup, uv, locks)
        else:
            setup.step("the project itself: in place")
        setup.step("streamproof setup: what the testbed runs, what is compiled, and a small job on all of it")
        setup.run("the testbed", [str(PYTHON), "-m", "streamproof.cli.main", "setup"], show=True)
        print(f"set up in {time.monotonic() - setup.began:.0f} s", flush=True)


def interrupted(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, interrupted)
    try:
        check_python()
        check_system()
        if in_place():
            print("set-up: in place", flush=True)
        else:
            set_up()
    except KeyboardInterrupt:
        print("interrupted; `make setup` goes on where this stopped", file=sys.stderr)
        return 130
    except Failure as failure:
        if str(failure):
            print(f"error: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}. Check the disk and the rights on it, then run `make setup` again.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
