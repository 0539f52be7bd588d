"""The folders of runs: <results>/<experiment>/<name>-<hash>, with

    manifest.json  config.toml  metrics.json  tables/<table>.csv  figures/<figure>.png

The hash is the hash of experiment and config. A run is made again if its manifest does
not fit any more: another version of the experiment, another corpus, a damaged table.

A run is stored by `RunFolder.keep`, and found again by `RunFolder.find` or
`find_finished`.
"""

import json
import math
import re
import shlex
import shutil
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import tomli_w
from pydantic import AfterValidator, StringConstraints, TypeAdapter

from ropelab.runs.cell import Stored
from ropelab.runs.config import Config, Label
from ropelab.runs.errors import InputError, say, say_once
from ropelab.runs.files import check_name
from ropelab.runs.folders import (
    Waiting,
    find_replaced,
    fingerprint,
    is_interrupted,
    list_files_below,
    lock_folder,
    put_back,
    replace_folder,
    try_to_write,
)
from ropelab.runs.metrics import flatten_summary
from ropelab.runs.pictures import read_png
from ropelab.runs.spelling import write_plainly
from ropelab.runs.surroundings import describe_surroundings
from ropelab.runs.tables import DamagedError, Entries, Format, Tables, check_written

# The version of the manifest's format.
SCHEMA = 1


def _check_command(command: str) -> str:
    """Return a command that a shell can read; ValueError for an open quote."""
    shlex.split(command)
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
    command: Annotated[str, AfterValidator(_check_command)]
    start: datetime
    seconds: float
    packages: dict[str, str | None]
    commit: str | None
    tables: Entries
    # The files of the figures; None if no figures were drawn. Names become paths, and
    # the pattern keeps the paths inside of the run's folder.
    figures: (
        list[Annotated[str, StringConstraints(pattern=r"^figures/\w[\w.+-]*$")]] | None
    )
    sha256: str
    # The hashes of the files beside the tables. Manifests of older runs have none.
    files: dict[Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")], str] = field(
        default_factory=dict
    )
    title: str = ""
    measurements: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


RUN = Format("manifest.json", "tables", TypeAdapter(Manifest))
# The names in a run's folder, besides the figures. Whatever has another name belongs to
# the user.
WRITTEN = (RUN.file, RUN.inside, "config.toml", "metrics.json")
FIGURES = "figures"
# The ends of the names of a figure's files: first the files for a screen, then the
# files for a paper.
FIGURE_ENDINGS = (
    *(".png", ".pdf", ".svg"),
    *("-paper.png", "-paper.pdf", "-paper.svg"),
)


class Made(NamedTuple):
    """A run that was computed and is to be stored."""

    tables: Tables
    # The content of each figure by the name of its file; None if no figures were drawn.
    figures: Mapping[str, bytes] | None
    # Entries of the manifest.
    about: Mapping[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, with everything that the tables of the run depend on."""

    results: Path
    experiment: str
    version: int
    config: Config
    # The fingerprints of everything that the run reads besides its config.
    inputs: Mapping[str, str]
    # The name of the run's folder begins with the name in the label. If the label has no
    # name, it begins with the values of the config that differ from the defaults.
    label: Label

    @cached_property
    def path(self) -> Path:
        """The folder, which need not exist. A run is found by its hash, whatever name
        stands before the hash.
        """
        config = self.config.model_dump(mode="json")
        run_hash = fingerprint({"experiment": self.experiment, "config": config})
        folder = self.results / self.experiment
        runs = _list_run_folders(folder)
        # The first eight of sixteen digits are easier to read. If the hash of another
        # config begins with the same eight digits, this run gets all sixteen.
        short_ending = f"-{run_hash[:8]}"
        long_ending = f"-{run_hash}"
        for path in runs:
            has_ending = path.name.endswith((short_ending, long_ending))
            if has_ending and not self._has_other_run(path):
                return path

        is_taken = any(path.name.endswith(short_ending) for path in runs)
        ending = long_ending if is_taken else short_ending
        return folder / f"{self._choose_name()}{ending}"

    def _choose_name(self) -> str:
        """Return the part of the folder's name before the hash."""
        name = _keep_readable(self.label.name)
        if name:
            return name
        changes = self.config.changed_fields().items()
        parts = [f"{field}-{write_plainly(value)}" for field, value in changes]
        return _keep_readable("_.".join(parts)) or "default"

    def _has_other_run(self, path: Path) -> bool:
        """Return True if a folder has a run of another config, or of a newer version."""
        # A damaged manifest does not tell which run the folder has. Such a run is
        # replaced.
        manifest = None
        with suppress(DamagedError):
            manifest = RUN.description(path)
        if manifest is None:
            return False

        # A newer ropelab may work in the same folder. Its runs are not touched.
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
        """Return the tables of the finished run; None if no run is stored, or if the
        stored run does not fit or is damaged. Damage is reported on stderr.
        """
        manifest = read_manifest(self.path)
        if manifest is None:
            return None
        if any(manifest.get(name) != fact for name, fact in self.facts.items()):
            return None
        try:
            _, tables = read_tables(self.path, manifest)
        except DamagedError as error:
            say_once(f"{error}: the run is made again")
            return None
        return tables

    def keep(
        self, make: Callable[[], Made], waiting: Waiting, is_forced: bool
    ) -> tuple[dict[str, pd.DataFrame], bool]:
        """Make the run and store it, unless it is stored already. Return its tables as
        read back, and True if they were stored already.

        One process makes the run and writes it, whole or not at all. Other processes
        that want the same run wait for it.

        Args:
            make: returns the run.
            waiting: called with the folder while another process holds it.
            is_forced: True makes the run even if it is stored already.
        """
        while True:
            with lock_folder(self.path, waiting):
                if not self._has_other_run(self.path):
                    return self._make_unless_there(make, is_forced)

            # Another process has just stored another run under this name. `path` is a
            # cached property, so its value is removed to have it computed again.
            vars(self).pop("path")

    def _make_unless_there(
        self, make: Callable[[], Made], is_forced: bool
    ) -> tuple[dict[str, pd.DataFrame], bool]:
        if not is_forced:
            stored = self.find()
            if stored is not None:
                return stored, True

        made = make()
        values = self.config.model_dump(mode="json", exclude_none=True)
        toml = tomli_w.dumps({"experiment": self.experiment, **values})
        metrics = flatten_summary(made.about["summary"])
        metrics_json = json.dumps(metrics, indent=2, ensure_ascii=False)
        files = {
            "config.toml": toml.encode(),
            "metrics.json": f"{metrics_json}\n".encode(),
        }
        hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
        about = {**self.facts, **made.about, **describe_surroundings(), "files": hashes}

        with replace_folder(self.path, _list_ours(self.path)) as new_folder:
            for name, content in files.items():
                (new_folder / name).write_bytes(content)
            about["figures"] = None
            if made.figures is not None:
                about["figures"] = _save_figures(made.figures, new_folder)
            return RUN.write(new_folder, made.tables, about), False

    def draw(
        self,
        pictures: Callable[[], Mapping[str, bytes]],
        is_forced: bool,
        waiting: Waiting,
    ) -> None:
        """Put figures into the finished run; they replace the figures that it has.

        Nothing is drawn if the run has figures and all their files are whole, unless
        `is_forced` is True.
        """
        if not is_forced and has_whole_figures(self.path):
            return
        try:
            check_writable(self.results)
        except InputError as error:
            if is_forced:
                raise
            say(f"figures are not drawn: {error}")
            return

        # The names that ropelab wrote are read from the folder while its lock is held.
        with ExitStack() as stack:
            stack.enter_context(lock_folder(self.path, waiting))
            ours = _list_ours(self.path)
            new_folder = stack.enter_context(replace_folder(self.path, ours))
            manifest = RUN.description(self.path)
            if manifest is None:
                raise DamagedError(f"{self.path / RUN.file} cannot be read any more")
            _copy_written(self.path, new_folder, ours)

            figures = _save_figures(pictures(), new_folder)
            RUN.describe(new_folder / RUN.file, {**manifest, "figures": figures})
            # The new folder is read and thereby verified before it replaces the old one.
            RUN.read(new_folder)


def _list_ours(folder: Path) -> dict[str, set[str]]:
    """Return the names of the files and folders that ropelab wrote into a run's folder,
    each with the names that ropelab wrote inside it.
    """
    ours: dict[str, set[str]] = {name: set() for name in (*WRITTEN, FIGURES)}
    manifest = None
    # If the manifest is damaged, it is not known which other files ropelab wrote. New
    # files then replace the files of the same names, and all other files are kept.
    with suppress(DamagedError):
        manifest = RUN.description(folder)
    if manifest is None:
        return ours

    for table in manifest["tables"]:
        ours[RUN.inside].add(f"{table}.csv")
    for figure in manifest["figures"] or ():
        stem = Path(figure).stem
        ours[FIGURES].update(f"{stem}{ending}" for ending in FIGURE_ENDINGS)
    return ours


def _copy_written(
    folder: Path, new_folder: Path, ours: Mapping[str, Collection[str]]
) -> None:
    """Copy the files that ropelab wrote, except for the figures, from a run's folder
    into the folder that replaces it.

    `ours` is the result of `_list_ours`.
    """
    for path in list_files_below(folder):
        relative_path = path.relative_to(folder)
        top = relative_path.parts[0]
        is_written = top in WRITTEN
        if path.parent != folder:
            is_written = is_written and path.name in ours[top]

        if is_written and path.is_file():
            copy = new_folder / relative_path
            copy.parent.mkdir(exist_ok=True, parents=True)
            shutil.copyfile(path, copy)


def _keep_readable(text: str, longest: int = 48) -> str:
    """Return a text with the characters that a folder's name can have on any system.

    Parts are separated by `_.` in the text and by `_` in the result.
    """
    name = re.sub(r"[^A-Za-z0-9.+]+", "-", text)
    name = name.replace("-.", "_")
    return name[:longest].strip("-_.")


def check_writable(folder: Path, name: str = "results") -> None:
    """Raise InputError if nothing can be written into a folder. `name` is the name of the
    flag that chooses the folder.
    """
    try:
        try_to_write(folder)
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
    manifest = read_manifest(folder)
    names = manifest.get("figures") if manifest else None
    if names is None:
        return False
    try:
        for name in names:
            read_png(folder / name)
    except OSError:
        return False
    return True


def hash_manifests(results: Path, folders: Iterable[Path]) -> dict[str, str]:
    """Return the hashes of the manifests of runs, by the path of the run's folder in
    `results`.
    """
    hashes = {}
    for folder in folders:
        try:
            manifest = (folder / RUN.file).read_bytes()
        except FileNotFoundError:
            # Another process may be between the two renames that replace the run.
            _put_back(folder)
            manifest = (folder / RUN.file).read_bytes()
        relative_path = folder.relative_to(results).as_posix()
        hashes[relative_path] = sha256(manifest).hexdigest()
    return hashes


def make_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON: a missing value becomes null, an infinite
    number the text `inf` or `-inf`.
    """
    with_nulls = table.astype(object).where(table.notna(), None)
    records = []
    for row in with_nulls.to_dict(orient="records"):
        records.append({str(name): spell_infinity(row[name]) for name in row})
    return records


def spell_infinity(value: Any) -> Any:
    """Return an infinite number as the text `inf` or `-inf`, any other value unchanged."""
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished run; None if the folder has no manifest, or a
    damaged one. Damage is reported once on stderr.
    """
    try:
        return _find_manifest(folder)
    except DamagedError as error:
        say_once(f"left out: {error}")
        return None


def read_tables(
    folder: Path, manifest: Mapping[str, Any]
) -> tuple[Mapping[str, Any], dict[str, pd.DataFrame]]:
    """Return the manifest and the tables of a run that belong together.

    The manifest is `manifest`, unless another process has replaced the run since that was
    read. DamagedError: a file is missing or was changed.
    """
    failed_manifest: Mapping[str, Any] | None = None
    while True:
        try:
            return manifest, RUN.tables(folder, manifest)
        except DamagedError:
            latest = _find_manifest(folder)
            # The same manifest is tried once more, as a folder that is replaced has no
            # name for a moment. Figures that are drawn again may leave the manifest as it
            # is.
            if latest is None or latest == failed_manifest:
                raise
            failed_manifest = manifest
            manifest = latest


def _find_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a run; None if there is none. DamagedError: it was changed."""
    manifest = RUN.description(folder)
    if manifest is None:
        # Another process may be between the two renames that replace the run.
        _put_back(folder)
        manifest = RUN.description(folder)
    return manifest


def find_finished(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the manifest of every finished run below `results`. Runs that
    cannot be read are reported on stderr.
    """
    for experiment in _select_visible(_list_paths(results)):
        yield from _find_finished(experiment)


def _find_finished(experiment: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    try:
        folders = _list_run_folders(experiment)
    except OSError as error:
        # The folder may belong to the system, as lost+found does.
        say_once(f"left out: {experiment} cannot be listed: {error.strerror}")
        return
    for folder in folders:
        try:
            manifest = _find_manifest(folder)
            if manifest is not None:
                check_name(folder)
                yield folder, manifest
        except (DamagedError, InputError) as error:
            say_once(f"left out: {error}")


def _list_run_folders(folder: Path) -> list[Path]:
    """Return the runs of an experiment by name, also a run that a process is replacing,
    which may have no folder just now; OSError if they cannot be listed.
    """
    paths = _list_paths(folder)
    return sorted({*_select_visible(paths), *find_replaced(paths)})


def _put_back(run: Path) -> None:
    """Restore the folder of a run if a process was killed while it replaced the folder.
    If that fails, the failure is reported on stderr.
    """
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


def _list_paths(folder: Path) -> list[Path]:
    """Return the paths in a folder.

    If the folder does not exist, the list is empty. OSError: the folder exists and
    cannot be listed. `glob` would return nothing in this case.
    """
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _select_visible(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are not hidden, in order of their names."""
    return sorted(path for path in paths if not path.name.startswith("."))


def load_stored_runs(results: Path, experiment: str, version: int) -> list[Stored]:
    """Return the finished runs of an experiment in order of their folders' names, and
    report damaged runs on stderr.

    `version` is the version of the experiment in this ropelab. Among runs that have the
    same name and different hashes, the runs of the latest version up to `version` are
    returned. If their version is below `version`, each run states it as
    `earlier_version`, and this is reported, too. So runs that take hours can be made
    again one by one, and numbers of two versions are never mixed under one name.
    """
    by_name: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for folder, manifest in _find_finished(results / experiment):
        if manifest["experiment"] == experiment:
            # The hash, which follows the last hyphen, differs between versions.
            name = folder.name.rpartition("-")[0]
            by_name.setdefault(name, []).append((folder, manifest))

    selected_runs = []
    for finished_runs in by_name.values():
        selected_runs += _select_latest(finished_runs, experiment, version)

    runs = []
    for folder, manifest in sorted(selected_runs, key=lambda run: run[0].name):
        try:
            latest, tables = read_tables(folder, manifest)
        except DamagedError as error:
            say_once(f"left out: {error}; the command in its manifest makes it again")
            continue
        run = Stored(experiment, latest["config"], tables, str(folder))
        if latest["version"] < version:
            run = replace(run, earlier_version=latest["version"])
        runs.append(run)
    return runs


def _select_latest(
    finished_runs: Sequence[tuple[Path, dict[str, Any]]], experiment: str, version: int
) -> list[tuple[Path, dict[str, Any]]]:
    """Select, among runs of the same name, the runs of the latest version up to
    `version`; report all other runs on stderr.
    """
    versions = [manifest["version"] for _, manifest in finished_runs]
    known_versions = [each for each in versions if each <= version]
    latest = max(known_versions, default=version)

    selected = []
    for folder, manifest in finished_runs:
        if manifest["version"] != latest:
            # Numbers of two versions must not be compared.
            say_once(
                f"left out: {folder} is of version {manifest['version']} of"
                f" {experiment}, the others are of {latest}"
            )
            continue

        if latest < version:
            say_once(
                f"{folder}: a run of version {latest} of {experiment}, quoted as what"
                f" that version measured; this is {version}"
            )
        selected.append((folder, manifest))
    return selected
