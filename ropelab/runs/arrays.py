"""jaxtyping's annotations of arrays with their shapes, without the cost of its import."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    # Importing jaxtyping (and asyncio with it) takes as long as reading and answering a
    # configuration. Only type checkers read the shapes, so at run time `Float[A, "n"]`
    # is the array type `A`.
    class Annotation:
        def __class_getitem__(cls, type_and_shape: tuple[Any, str]) -> Any:
            array_type, _ = type_and_shape
            return array_type

    Bool = Float = Int = Shaped = Annotation

__all__ = ["Bool", "Float", "Int", "Shaped"]
