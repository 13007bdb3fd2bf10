"""Every version of a table: what each one showed, as two readers find it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamproof.evidence import versions
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.versions import Identities, Version

Files = frozenset[Path]


@dataclass(frozen=True)
class History:
    """The versions of a table, the oldest first. ``unread`` has a sentence for each thing that is not known of them."""

    versions: Sequence[Version] = ()
    unread: Sequence[str] = ()


def write(
    folder: RunFolder, table: Path, history: History, again: Sequence[Files | None], identities: Callable[[Path], Identities | None]
) -> None:
    """Write ``versions/`` of the table. ``again`` are the files of each version as another reader finds them, None for one that it does not
    know. Raises EvidenceError naming the first version of which the two have not found the same files."""
    compare(history.versions, again)
    versions.write(folder, history.versions, identities, history.unread, lambda file: kept(folder, table, file))


def keep(folder: RunFolder, table: Path, files: Iterable[Path]) -> None:
    """Keep these files of a table for the drain: somebody is about to delete them, and older versions showed them."""
    for file in files:
        aside = folder.kept / file.relative_to(table)
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.hardlink_to(file)
        except FileExistsError:
            continue
        except OSError:  # another file system
            shutil.copy2(file, aside)


def kept(folder: RunFolder, table: Path, file: Path) -> Path:
    """Where a file of a table can be read: where it is, or where it was kept."""
    return file if file.exists() or not file.is_relative_to(table) else folder.kept / file.relative_to(table)


def compare(history: Sequence[Version], again: Sequence[Files | None]) -> None:
    if len(history) != len(again):
        raise EvidenceError(f"the table's metadata have {len(history)} versions, another reader finds {len(again)}")
    for version, files, theirs in zip(history, states(history), again, strict=True):
        if version.known and theirs is not None and files != theirs:
            example = sorted(files ^ theirs)[0]
            which = "only its metadata name" if example in files else "only another reader finds"
            raise EvidenceError(f"{version.told}: two readers of the table do not find the same files; {which} {example}")


def states(history: Sequence[Version]) -> Iterator[Files]:
    """The files of each version."""
    files: Files = frozenset()
    for version in history:
        files = files - set(version.removed) | set(version.added)
        yield files


def changes(files: Sequence[tuple[int, str, Files | None]]) -> Iterator[Version]:
    """The versions with these files: of each when it was committed, in ms, what it is, in words, and None where its files are not known."""
    before: Files = frozenset()
    for at_ms, told, now in files:
        if now is None:
            yield Version(at_ms, told, known=False)
            continue
        yield Version(at_ms, told, tuple(sorted(now - before)), tuple(sorted(before - now)))
        before = now
