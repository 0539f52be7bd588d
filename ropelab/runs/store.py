"""Run folders, <results>/<experiment>/<name>-<hash>; the hash is of experiment and
config.

    manifest.json  config.toml  metrics.json  tables/<table>.csv  figures/<figure>.png

A run whose manifest does not fit any more (another version of the experiment, another
corpus, a damaged table) is made again.
"""

import errno
import json
import math
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from warnings import catch_warnings

import pandas as pd
import tomli_w
from pydantic import AfterValidator, StringConstraints, TypeAdapter

from ropelab.runs.cell import Stored
from ropelab.runs.config import Config, Label
from ropelab.runs.errors import InputError, say, say_once
from ropelab.runs.files import check_name, read_regular
from ropelab.runs.folders import (
    Waiting,
    files_below,
    fingerprint,
    interrupted_in,
    is_interrupted,
    locked,
    put_back,
    replaced,
)
from ropelab.runs.spelling import plain
from ropelab.runs.tables import DamagedError, Entries, Format, Tables, check_written

SCHEMA = 1
# Bytes and pixels of a figure.
LARGEST_PICTURE, MOST_PIXELS = 2**25, 2**25
# The last chunk of every PNG, with its checksum.
PNG_END = b"IEND\xaeB`\x82"
PACKAGES = ("ropelab", "torch", "numpy", "pandas", "scipy", "matplotlib")


def _readable_by_a_shell(command: str) -> str:
    shlex.split(command)  # a ValueError for an open quote
    return command


@dataclass
class Manifest:
    """The origin of the numbers of a run, and the sentences about them."""

    schema: int
    experiment: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]
    question: str
    cannot_show: str
    answer: str
    summary: list[dict[str, Any]]
    command: Annotated[str, AfterValidator(_readable_by_a_shell)]
    start: datetime
    seconds: float
    packages: dict[str, str | None]
    commit: str | None
    tables: Entries
    # Names become paths: they stay inside the run's folder.
    figures: (
        list[Annotated[str, StringConstraints(pattern=r"^figures/\w[\w.+-]*$")]] | None
    )
    sha256: str
    # Hashes of what is beside the tables; older runs have none.
    files: dict[Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")], str] = field(
        default_factory=dict
    )
    title: str = ""
    measurements: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


RUN = Format("manifest.json", "tables", TypeAdapter(Manifest))
# The contents of a run's folder; whatever else is there is the user's.
WRITTEN = (RUN.file, RUN.inside, "config.toml", "metrics.json")
FIGURES = "figures"


class Made(NamedTuple):
    """A run to be stored: tables, figures as files (None: drawn later), entries of the
    manifest.
    """

    tables: Tables
    figures: Mapping[str, bytes] | None
    about: Mapping[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, from everything that its tables follow from.

    `inputs` are fingerprints of what the run reads besides its config. The label names
    the folder; one without a name is called after what differs from the defaults.
    """

    results: Path
    experiment: str
    version: int
    config: Config
    inputs: Mapping[str, str]
    label: Label

    @cached_property
    def path(self) -> Path:
        """The folder, which need not exist; it is found again under whatever name it
        first had.
        """
        config = self.config.model_dump(mode="json")
        code = fingerprint({"experiment": self.experiment, "config": config})
        folder = self.results / self.experiment
        runs = _runs_in(folder)
        # Eight digits are enough for people. Where a run of another config has the same
        # ones, this run has all sixteen.
        endings = (f"-{code[:8]}", f"-{code}")
        for path in runs:
            if path.name.endswith(endings) and not self._is_anothers(path):
                return path

        taken = any(path.name.endswith(endings[0]) for path in runs)
        changed = (
            f"{name}-{plain(value)}" for name, value in self.config.changed().items()
        )
        name = _readable(self.label.name) or _readable("_.".join(changed)) or "default"
        return folder / f"{name}{endings[1] if taken else endings[0]}"

    def _is_anothers(self, path: Path) -> bool:
        """Return True if a folder has a run of another config, or of a newer version."""
        # What is damaged says nothing, and is replaced.
        manifest = None
        with suppress(DamagedError):
            manifest = RUN.description(path)
        if manifest is None:
            return False

        # A newer ropelab works in the same folder: its run is left alone.
        is_newer = manifest["version"] > self.version or manifest["schema"] > SCHEMA
        names = ("experiment", "config")
        return is_newer or any(manifest[name] != self.facts[name] for name in names)

    @property
    def facts(self) -> dict[str, Any]:
        """The part of the manifest that must agree for a run to be reused."""
        return {
            "schema": SCHEMA,
            "experiment": self.experiment,
            "version": self.version,
            "config": self.config.model_dump(mode="json"),
            "inputs": dict(self.inputs),
        }

    def find(self) -> dict[str, pd.DataFrame] | None:
        """Return the tables of the finished run, None without one that fits; damage is
        said.
        """
        manifest = read_manifest(self.path)
        if manifest is None or any(
            manifest.get(k) != fact for k, fact in self.facts.items()
        ):
            return None
        try:
            return RUN.tables(self.path, manifest)
        except DamagedError as error:
            say_once(f"{error}: the run is made again")
            return None

    def kept(
        self, make: Callable[[], Made], waiting: Waiting, again: bool
    ) -> tuple[dict[str, pd.DataFrame], bool]:
        """Return the tables of the run as read back, and True if they were there.

        One process makes and writes it, whole or not at all; others wait for it.
        """
        while True:
            with locked(self.path, waiting):
                if not self._is_anothers(self.path):
                    return self._make_unless_there(make, again)

            # Another process has just stored another run under this very name.
            vars(self).pop("path")

    def _make_unless_there(
        self, make: Callable[[], Made], again: bool
    ) -> tuple[dict[str, pd.DataFrame], bool]:
        if not again and (stored := self.find()) is not None:
            return stored, True

        made = make()
        values = self.config.model_dump(mode="json", exclude_none=True)
        toml = tomli_w.dumps({"experiment": self.experiment, **values})
        metrics = metrics_of(made.about["summary"])
        numbers = json.dumps(metrics, indent=2, ensure_ascii=False)
        files = {
            "config.toml": toml.encode(),
            "metrics.json": f"{numbers}\n".encode(),
        }
        hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
        about = {**self.facts, **made.about, **surroundings(), "files": hashes}

        with replaced(self.path, (*WRITTEN, FIGURES)) as fresh:
            for name, content in files.items():
                (fresh / name).write_bytes(content)
            about["figures"] = None
            if made.figures is not None:
                about["figures"] = _save_figures(made.figures, fresh)
            return RUN.write(fresh, made.tables, about), False

    def draw(
        self, pictures: Callable[[], Mapping[str, bytes]], again: bool, waiting: Waiting
    ) -> None:
        """Put figures into the finished run, in the place of those it has, unless all
        are whole.
        """
        if not again and has_whole_figures(self.path):
            return
        try:
            check_writable(self.results)
        except InputError as error:
            if again:
                raise
            say(f"figures are not drawn: {error}")
            return

        ours = (*WRITTEN, FIGURES)
        with locked(self.path, waiting), replaced(self.path, ours) as fresh:
            if (manifest := RUN.description(self.path)) is None:
                raise DamagedError(f"{self.path / RUN.file} cannot be read any more")
            for path in files_below(self.path):
                place = path.relative_to(self.path)
                if path.is_file() and place.parts[0] in WRITTEN:
                    copy = fresh / place
                    copy.parent.mkdir(exist_ok=True, parents=True)
                    shutil.copyfile(path, copy)

            drawn = _save_figures(pictures(), fresh)
            RUN.describe(fresh / RUN.file, {**manifest, "figures": drawn})
            RUN.read(fresh)


def _readable(text: str, longest: int = 48) -> str:
    """Keep the part of a text that a folder's name can hold everywhere."""
    return (
        re.sub(r"[^A-Za-z0-9.+]+", "-", text).replace("-.", "_")[:longest].strip("-_.")
    )


def check_writable(folder: Path, name: str = "results") -> None:
    """Raise InputError for the folder of the flag of that name, if it cannot be
    written.
    """
    # One name for all: what a failure leaves goes with the next one that looks.
    probe = folder / ".writable"

    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot write to the {name} folder {folder}: {reason}; choose another"
            f" --{name}"
        ) from None


def _save_figures(figures: Mapping[str, bytes], folder: Path) -> list[str]:
    (folder / FIGURES).mkdir()
    for name, content in figures.items():
        (folder / FIGURES / name).write_bytes(content)
        check_written(folder / FIGURES / name, sha256(content).hexdigest())
    return [f"{FIGURES}/{name}" for name in figures]


def has_whole_figures(folder: Path) -> bool:
    """Return True if a run has figures and all are whole."""
    names = (read_manifest(folder) or {}).get("figures")
    with suppress(OSError):
        for name in names or ():
            read_png(folder / name)
        return names is not None
    return False


def read_png(path: Path) -> bytes:
    """Return a whole PNG, by its checksums; OSError if it is none, or larger than
    figures are.
    """
    from PIL import Image

    content = read_regular(path, LARGEST_PICTURE)
    try:
        # Pillow knows many formats, and hands some to other programs.
        with catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
            picture = Image.open(BytesIO(content), formats=["PNG"])
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"more than {MOST_PIXELS} pixels")
        picture.verify()
        if not content.endswith(PNG_END):
            raise ValueError("something follows its end")
    except (
        OSError,
        SyntaxError,
        ValueError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise OSError(errno.EINVAL, f"Not a whole PNG ({error})", str(path)) from None
    return content


def metrics_of(summary: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Flatten the short table into numbers for experiment trackers: `yarn ×4/copy
    @4096`.

    A row is named by its words before its first number, or by its first column where
    that is a number; by more columns where names would be equal. What is missing or
    infinite has no entry.

    >>> metrics_of([{"method": "pi", "loss": 1.5}, {"method": "yarn", "loss": None}])
    {'pi/loss': 1.5}
    """
    rows = [*dict.fromkeys(tuple(row.items()) for row in summary)]
    for columns in range(1, max(map(len, rows), default=1) + 1):
        named: dict[str, Any] = {}
        for row in rows:
            words = [*takewhile(lambda item: isinstance(item[1], str), row)]
            head = row[: max(columns, len(words))]
            name = "/".join(
                v if isinstance(v, str) else f"{key}={v}" for key, v in head
            )
            named[name] = row[len(head) :]
        if len(named) == len(rows):
            break
    return {
        f"{name}/{key}": value
        for name, rest in named.items()
        for key, value in rest
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def as_inputs(results: Path, folders: Iterable[Path]) -> dict[str, str]:
    """Return the hashes of the manifests of runs that another one reads, by place in
    `results`.
    """
    return {
        folder.relative_to(results).as_posix(): (
            sha256((folder / RUN.file).read_bytes()).hexdigest()
        )
        for folder in folders
    }


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON: a missing value is null, an infinite one the text `inf` or
    `-inf`.
    """
    plain = table.astype(object).where(table.notna(), None)
    plain = plain.replace({math.inf: "inf", -math.inf: "-inf"})
    return plain.to_dict(orient="records")  # type: ignore[return-value]


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished run; None without one, or (said once) a damaged
    one.
    """
    _put_back(folder)
    try:
        return RUN.description(folder)
    except DamagedError as error:
        say_once(f"left out: {error}")
        return None


def finished(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield folder and manifest of every finished run below `results`; unreadable ones
    are said.
    """
    for experiment in _listed(results):
        yield from _finished_in(experiment)


def _finished_in(experiment: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    try:
        folders = _runs_in(experiment)
    except OSError as error:  # of anybody, as lost+found
        say_once(f"left out: {experiment} cannot be listed: {error.strerror}")
        return
    for folder in folders:
        try:
            if (manifest := RUN.description(folder)) is not None:
                check_name(folder)
                yield folder, manifest
        except (DamagedError, InputError) as error:
            say_once(f"left out: {error}")


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs of an experiment by name; OSError if they cannot be listed."""
    for run in interrupted_in(folder):
        _put_back(run)
    return _listed(folder)


def _put_back(run: Path) -> None:
    """Restore a run whose process was killed between the two renames, or say so."""
    if not is_interrupted(run):
        return

    try:
        put_back(run)
    except OSError as error:
        reason = error.strerror or error
        say_once(
            f"left out: {run} was being replaced when a process ended, and cannot be"
            f" put back: {reason}"
        )


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder by name, nothing hidden; OSError where `glob` keeps
    silent.
    """
    try:
        return sorted(
            path for path in folder.iterdir() if not path.name.startswith(".")
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def stored_runs(results: Path, experiment: str, version: int) -> list[Stored]:
    """Return the finished runs of an experiment by folder name; damaged ones are said
    once.

    Runs of an earlier version are returned where there is none of this one: they are
    quoted as what that version measured, which is said.
    """
    finished_runs = []
    for folder, manifest in _finished_in(results / experiment):
        if manifest["experiment"] == experiment:
            finished_runs.append((folder, manifest))
    latest = max(
        (m["version"] for _, m in finished_runs if m["version"] <= version),
        default=version,
    )
    if latest < version:
        say_once(
            f"{results / experiment}: runs of version {latest} of {experiment} are"
            f" quoted as what that version measured; this is {version}"
        )

    runs = []
    for folder, manifest in finished_runs:
        if manifest["version"] != latest:
            # Its numbers mean something else than those of the others.
            say_once(
                f"left out: {folder} is of version {manifest['version']} of"
                f" {experiment}, the others are of {latest}"
            )
            continue

        try:
            tables = RUN.tables(folder, manifest)
            runs.append(Stored(experiment, manifest["config"], tables, str(folder)))
        except DamagedError as error:
            say_once(f"left out: {error}; the command in its manifest makes it again")
    return runs


def surroundings() -> dict[str, Any]:
    """Return the rest that numbers may depend on: versions, machine, threads, the
    code's commit.
    """
    # Threads are those of torch; null where it was not used.
    torch = sys.modules.get("torch")
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch and torch.get_num_threads(),
        **_commit(),
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> dict[str, Any]:
    """Find the commit of the checkout that tracks this file, and if it was changed
    since.
    """
    # An installed package may be inside a checkout of something else, and the
    # environment may name another repository (GIT_DIR): neither says where these lines
    # come from.
    here = Path(__file__)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    ask = partial(
        subprocess.run, cwd=here.parent, env=environment, capture_output=True, text=True
    )

    with suppress(OSError):
        tracked = ask(["git", "ls-files", "--error-unmatch", "--", here.name])
        commit = ask(["git", "rev-parse", "HEAD"])
        changes = ask(["git", "status", "--porcelain", "--", "."])
        if not (tracked.returncode or commit.returncode):
            return {
                "commit": commit.stdout.strip(),
                "dirty": bool(changes.stdout.strip()),
            }
    return {"commit": None, "dirty": None}
