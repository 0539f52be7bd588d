"""Does this rotary code compute what its configuration says, and if not, what is wrong?"""

from ropelab.audit.check.run import Outcome, Question, check

__all__ = ["Outcome", "Question", "check"]
