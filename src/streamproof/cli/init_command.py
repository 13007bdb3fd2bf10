"""``streamproof init``: a project around somebody's own job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamproof import settings
from streamproof.cli.terminal import say
from streamproof.errors import BadInput
from streamproof.evidence.folder import write_atomically
from streamproof.experiment import model, scaffold

TEST = """def test_{function}_keeps_its_promise(streamproof):
    run = streamproof.run("chaos/{name}.yaml")
    run.assert_passed()
"""


def init(
    script: Annotated[Path | None, typer.Argument(help="The job's script; it is read for hints, never run.")] = None,
    folder: Annotated[Path, typer.Option(help="The project's folder.")] = Path(),
) -> None:
    """Make a project: a first experiment with your job, a test for pytest, and the next command. No file that is there is changed."""
    hints = scaffold.Hints() if script is None else scaffold.read(script)
    name = "job" if script is None else scaffold.name_of(script)
    command = "job.py" if script is None else _from(folder, script)
    files = {
        settings.MARKER: "# This folder is a project of streamproof; what it makes lies in .streamproof/.\n",
        f"chaos/{name}.yaml": scaffold.experiment(command, name, hints),
        f"tests/test_{name.replace('-', '_')}.py": TEST.format(name=name, function=name.replace("-", "_")),
        ".gitignore": ".streamproof/\n",
    }
    there = [path for path in files if (folder / path).exists()]
    if f"chaos/{name}.yaml" in there:
        raise BadInput(f"{folder / 'chaos' / name}.yaml is there already: edit it, or move it away")
    for path, text in files.items():
        if path not in there:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / path, text)
            say(f"made {folder / path}")
    model.load(folder / "chaos" / f"{name}.yaml")  # what was written can be planned
    for line in _look_at(hints, script):
        say(f"  {line}")
    say(f"next: {'' if folder == Path() else f'cd {folder} && '}streamproof doctor chaos/{name}.yaml")


def _from(folder: Path, script: Path) -> str:
    """The script as the project's commands name it."""
    try:
        return str(script.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(script.resolve())


def _look_at(hints: scaffold.Hints, script: Path | None) -> list[str]:
    """What somebody should look at before the job is started."""
    lines = [f"{script} names {address} itself: let it take that from a variable, which `env` sets" for address in hints.addresses]
    unknown = [variable for variable in hints.variables if scaffold.placeholder(variable) is None]
    if unknown:
        lines.append(f"set {', '.join(unknown)} in `env`")
    if len(hints.sinks) > 1:
        lines.append(f"{script} writes to {' and '.join(sorted(hints.sinks))}: say in `delivers` which of them is judged")
    return lines
