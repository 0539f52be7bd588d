"""What the observers share: ask about every configuration, write one JSON document."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs import all_configs, names


class AbsentError(Exception):
    """The runtime has nothing to ask here: no such model, no such module."""


def entry(inv_freq: Sequence[float], attention: float) -> dict[str, Any]:
    """One observed table: frequencies as they were in float32, and the factor on cos
    and sin.
    """
    return {"inv_freq": list(inv_freq), "attention_factor": attention}


def from_rotation(cos: Any, sin: Any) -> dict[str, Any]:
    """The same from cos and sin of position 1, as far as frequencies are below pi."""
    import numpy as np

    cos, sin = np.asarray(cos, np.float64), np.asarray(sin, np.float64)
    return entry(np.arctan2(sin, cos).tolist(), float(np.hypot(cos, sin).mean()))


def main(version: str, observe: Callable[[dict], dict], out: str) -> None:
    """Observe every configuration; an exception of the runtime is an observation
    too.
    """
    rows = {}
    for name, config in zip(names(), all_configs(), strict=True):
        try:
            rows[name] = observe(json.loads(json.dumps(config)))
        except AbsentError as absent:
            rows[name] = {"absent": str(absent)}
        except Exception as error:
            rows[name] = {
                "refused": f"{type(error).__name__}: {error}".splitlines()[0][:160]
            }
    Path(out).write_text(json.dumps({"version": version, "rows": rows}))
    kinds = [next(iter(row)) for row in rows.values()]
    print(version, {kind: kinds.count(kind) for kind in sorted(set(kinds))})
