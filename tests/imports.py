"""What a command has imported by the time it ends, seen from outside; files as
modules.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

LARGE = ("torch", "numpy", "pandas", "matplotlib", "scipy")
CODE = """
import json, sys
from ropelab.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print("\\n" + json.dumps([stop.code, sorted(sys.modules)]))
"""


def imported_by(*arguments, among=LARGE):
    """The exit status of a command in a process of its own, and which modules it
    imported.
    """
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, modules = json.loads(done.stdout.splitlines()[-1])
    return status, {name for name in among if name in modules}


def loaded(file: Path) -> ModuleType:
    """A script as a module, which is in no package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
