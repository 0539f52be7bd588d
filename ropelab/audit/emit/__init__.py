"""What has to be written so that a runtime computes what is wanted?"""

from ropelab.audit.emit.run import Request, wanted_spec

__all__ = ["Request", "wanted_spec"]
