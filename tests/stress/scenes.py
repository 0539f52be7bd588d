"""The situations in which something is made to happen: a command, and the folder it finds."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.stress.bench import command, told
from tests.stress.promise import tables_in

Arguments = Callable[[Path], tuple[str, ...]]


@dataclass(frozen=True)
class Scene:
    """A situation.

    Attributes:
        name: what is done.
        arguments: the command, for a results folder.
        before: a results folder to begin with, None for an empty one.
        right: the tables that are there when it has been carried out.
        like: whether another situation has nearly all of its file operations.
    """

    name: str
    arguments: Arguments
    before: Path | None
    right: dict[str, bytes]
    like: bool = False

    def begin(self, results: Path) -> Path:
        """Put the folder into its first state."""
        shutil.rmtree(results, ignore_errors=True)
        if self.before:
            shutil.copytree(self.before, results)
        return results


def scenes(folder: Path) -> list[Scene]:
    """All situations; `folder` is for what they begin with."""
    done, figureless = folder / "done", folder / "figureless"
    config = folder / "default.toml"
    config.write_text('experiment = "bench"\n')
    told(*command(done))
    told(*command(figureless, "--no-figures"))
    right = tables_in(done)

    def configs(results: Path) -> tuple[str, ...]:
        return ("run", str(config), "--results", str(results), "--quiet", "--workers", "1")

    def plain(*more: str) -> Arguments:
        return lambda results: command(results, *more)

    return [
        Scene("a first run", plain("--no-figures"), None, right),
        Scene("a run that is there", plain(), done, right),
        Scene("--force", plain("--force", "--no-figures"), done, right, like=True),
        Scene("--redraw", plain("--redraw"), done, right),
        Scene("figures of a run without", plain(), figureless, right),
        Scene("a PDF as well", plain("--format", "pdf"), done, right),
        Scene("ropelab run, index and page", configs, None, right, like=True),
    ]
