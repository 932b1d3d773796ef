"""What settings are."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Checked, frozen settings that can be written to JSON; unknown names are refused.

    >>> class Walk(Settings):
    ...     steps: int = 3
    >>> Walk(step=4)
    Traceback (most recent call last):
    ValueError: Walk has no setting 'step': expected one of steps
    >>> Walk(steps="many")
    Traceback (most recent call last):
    ValueError: Walk: steps='many': input should be a valid integer, unable to parse string as an integer
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError("; ".join(_explain(type(self), one) for one in error.errors())) from None

    @classmethod
    def of(cls, value: Any) -> Self:
        """Settings as they are, or made from a dict."""
        if isinstance(value, cls):
            return value
        if isinstance(value, dict):
            return cls(**value)
        raise TypeError(f"{cls.__name__} is a {type(value).__name__}: expected {cls.__name__}(...) or a dict")


def _explain(settings: type[BaseModel], error: Any) -> str:
    *parents, name = error["loc"] or ("",)
    if isinstance(name, int) and parents:  # an element of a list
        name = parents.pop()
    for parent in parents:
        field = settings.model_fields.get(str(parent))
        inner = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
        settings = next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), settings)
    if error["type"] == "extra_forbidden":
        return f"{settings.__name__} has no setting {name!r}: expected one of {', '.join(settings.model_fields)}"
    if error["type"] == "missing":
        return f"{settings.__name__} lacks {name!r}: give it a value"
    message = error["msg"][:1].lower() + error["msg"][1:]
    if error["type"] == "value_error":  # raised by other settings, or by a check of ours: it says all there is to say
        return str(error["ctx"]["error"])
    return f"{settings.__name__}: {name}={error['input']!r}: {message}"
