"""Arguments and options that several commands have, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from streamproof import settings
from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder
from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import explain

FileArgument = Annotated[Path, typer.Argument(help="An experiment as YAML; the project's are in chaos/.")]
SeedOption = Annotated[int | None, typer.Option(help="Instead of the file's seed.", min=0, max=model.MAX_SEED)]
RunArgument = Annotated[str, typer.Argument(help="A run: its folder, or its name in the runs' folder.")]
SparkOption = Annotated[
    str | None,
    typer.Option(
        metavar="MASTER",
        help="Have a Spark job compare the histories: on the testbed's own Spark (testbed), in this process (local[N]), or on a cluster "
        "whose machines see the runs' folder under the same path (spark://HOST:PORT).",
    ),
]


def experiment_in(file: Path, seed: int | None) -> Experiment:
    experiment = model.load(file)
    try:
        return experiment.with_seed(seed)
    except ValidationError as error:
        raise BadInput(explain(error, "--seed")) from None


def run_folder(name: str) -> RunFolder:
    path = Path(name)
    return RunFolder.open(path if path.exists() else settings.runs() / name)
