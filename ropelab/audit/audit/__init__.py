"""What does a model's configuration say about positions, and do the runtimes agree?

Not an experiment that is kept: the input is somebody's file and the answer takes less time than
finding a stored one. Tables are lists of rows, so that nothing heavy is imported.
"""

from ropelab.audit.audit.run import Audit, Options, audit, audit_file, compare_files

__all__ = ["Audit", "Options", "audit", "audit_file", "compare_files"]
