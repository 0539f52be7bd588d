"""Which files a run becomes: one of everything, or one per way of reading a model given."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ropelab.show.harness.document import document
from ropelab.show.harness.given import by_reading
from ropelab.show.harness.lines import tasks_of
from ropelab.show.page.shown import Shown


def files_of(run: Shown, tables: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Documents by the path of their file below the folder of the export."""
    manifest = run.manifest
    config = manifest.get("config", {})
    if config.get("hf"):
        return by_reading(manifest, tables)
    experiment = manifest["experiment"]
    tasks = list(tasks_of(experiment, tables))
    return {"results.json": document(tasks, manifest, f"ropelab {experiment}", config)}
