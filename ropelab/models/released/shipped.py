"""Reading a model as its checkpoint says: the sign for it, in the place of an encoding."""

from typing import ClassVar

from ropelab.models.encoding.base import Encoding


class AsShipped(Encoding):
    """Whatever the checkpoint does: its frequencies, scaling, softmax factor and windows.

    Args:
        max_position: the last position for which it is defined; None means any.
    """

    name: ClassVar[str] = "as_shipped"

    def __init__(self, max_position: int | None = None) -> None:
        super().__init__()
        self.max_position = max_position


AS_SHIPPED = AsShipped()
"""`model.encoding = AS_SHIPPED` undoes every exchange."""
