"""A command that is disturbed, and given again."""

from contextlib import AbstractContextManager
from pathlib import Path

from tests.stress.bench import told
from tests.stress.promise import all_right, leftovers, nothing_half, one_line
from tests.stress.scenes import Scene


def endured(scene: Scene, results: Path, disturbance: AbstractContextManager[object]) -> str:
    """What does not hold of a situation under a disturbance, and again without it."""
    arguments = scene.arguments(scene.begin(results))
    problems: list[str] = []
    try:
        with disturbance:
            first = told(*arguments)
        if first.status:
            problems += one_line(first)
            problems += nothing_half(results, scene.right)
        problems += all_right(results, told(*arguments), scene.right)
        if first.status and leftovers(results):  # else it was the cleaning up that failed
            problems.append(f"left behind: {leftovers(results)}")
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    return "; ".join(problems)
