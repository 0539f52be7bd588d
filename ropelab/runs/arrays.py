"""Annotations of arrays with their shapes, jaxtyping's, for code that does not need
torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    # Importing jaxtyping takes as long as reading a configuration and answering
    # (asyncio is among what it imports). Nothing here asks it at run time.
    class Annotation:
        def __class_getitem__(cls, of: tuple[Any, str]) -> Any:
            return of[0]

    Bool = Float = Int = Shaped = Annotation

__all__ = ["Bool", "Float", "Int", "Shaped"]
