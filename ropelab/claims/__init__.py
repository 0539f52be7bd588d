"""Statements about rotary embeddings with their sources, judged by computing.

A claim is a record in a TOML file; its check is a function in the Python file of the
same name: by a computation, program code or a dated document, or, in `trained`, by the
stored runs of the labs.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableClaims(ModuleType):
    # This room is called itself as `ropelab.claims(...)`: a function of that name would
    # be replaced as soon as anything imports the room.
    def __call__(self, **values: Any) -> Any:
        import ropelab

        return ropelab.command_of("claims")(**values)


sys.modules[__name__].__class__ = _CallableClaims
