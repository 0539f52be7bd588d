"""Configurations of models: audited as runtimes read them, and written for them.

`audited` sets the runtimes' readings side by side, `findings` applies the rules to them,
and `emit` is the inverse of the readers.

Users call `ropelab.audit(...)`. This package has the same name as that function, so the
package itself can be called: a function `audit` in `ropelab` would be replaced by the
package as soon as anything imports the package.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from ropelab.audit.audited import FileAudit
    from ropelab.readers.document import Document


class _CallableAudit(ModuleType):
    def __call__(
        self, source: "str | PathLike[str] | Document", **options: Any
    ) -> "FileAudit":
        """Return a configuration as each runtime reads it; see
        `ropelab.audit.audited.audit`.
        """
        from ropelab.audit.audited import audit

        return audit(source, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pool of processes pickles what it calls. A module has no pickle, so that its
        # name is sent, and the other process imports it.
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _CallableAudit
