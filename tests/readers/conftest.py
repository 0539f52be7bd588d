"""The questions that the runtimes were asked, and what they answered."""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
collect_ignore_glob = ["oracles/*"]


def load(name: str) -> Any:
    """A module of the oracles folder, which is no package and not collected."""
    spec = importlib.util.spec_from_file_location(
        f"oracle_{name}", HERE / "oracles" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Golden:
    """Configurations by name, and per runtime what it computed for each."""

    configs: dict[str, dict]
    lengths: dict[str, tuple[int, int]]
    answers: dict[str, dict[str, Any]]
    versions: dict[str, str]
    tables: list[np.ndarray]


@pytest.fixture(scope="session")
def golden() -> Golden:
    asked = load("configs")
    configs = dict(zip(asked.names(), asked.all_configs(), strict=True))
    documents = {
        p.stem: json.loads(p.read_text()) for p in (HERE / "golden").glob("*.json")
    }
    with np.load(HERE / "golden" / "tables.npz") as stored:
        ends = np.cumsum(stored["sizes"])[:-1]
        tables = np.split(stored["values"].astype(np.float64), ends)
    return Golden(
        configs,
        {name: asked.lengths(config) for name, config in configs.items()},
        {name: document["rows"] for name, document in documents.items()},
        {name: document["version"] for name, document in documents.items()},
        tables,
    )
