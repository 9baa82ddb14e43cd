"""Frozen, validated, JSON both ways: the base of domains, metrics and spaces.

Every one of them is a pydantic model with a `kind`, so that a plan file can hold any of
them, but wrong input is told as one `InputError` sentence that names the field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from metricshuffle.display import one_line_repr
from metricshuffle.errors import InputError, PlanError

# Whole numbers up to here, and their neighbours, are told apart by a double.
LARGEST_WHOLE = 2**53 - 1


def format_value(value: object) -> str:
    """A value as it appears in a sentence: short, and safe for integers of any size."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and abs(value) >= 10**25:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | tuple | np.ndarray):
        inside = ", ".join(format_value(part) for part in value[:4]) + (", ..." if len(value) > 4 else "")
        return f"({inside})"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _real(value: object) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"must be a number, got {format_value(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, got {format_value(value)}")
    return number


def _whole(value: object) -> int:
    number = _real(value)
    if number != math.floor(number):
        raise ValueError(f"must be a whole number, got {format_value(value)}")
    if abs(number) > LARGEST_WHOLE:
        raise ValueError(f"must lie within +-(2^53 - 1), where every whole number is exact in floating point, got {format_value(value)}")
    return int(number)


def _positive(value: object) -> float:
    number = _real(value)
    if not number > 0:
        raise ValueError(f"must be > 0, got {format_value(value)}")
    return number


def _or_infinite(value: object) -> object:
    return math.inf if value is None else value


# JSON has no infinity; pydantic writes null for it, and null is read back as the pessimistic answer.
OrInfinite = Annotated[float, BeforeValidator(_or_infinite)]
Real = Annotated[float, BeforeValidator(_real)]
Positive = Annotated[float, BeforeValidator(_positive)]
Whole = Annotated[int, BeforeValidator(_whole)]


def parse_json(text: str, what: str) -> Any:
    """JSON, or a sentence; `what` names the thing in it: "a plan"."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"this is not {what}: it is not JSON ({error.msg} at line {error.lineno}).") from None
    except (ValueError, RecursionError):
        raise PlanError(f"this is not {what}: it nests too deeply, or a number has thousands of digits.") from None


def content_digest(content: Any) -> str:
    """SHA-256 of canonical JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def validation_message(failure: ValidationError) -> str:
    """What pydantic found, as one sentence that names the model and the fields."""
    parts = []
    for error in failure.errors():
        field, message = ".".join(str(step) for step in error["loc"]), error["msg"]
        if error["type"] == "extra_forbidden":
            parts.append(f"{field} is not one of its fields")
        elif error["type"] == "missing":
            parts.append(f"{field} is missing")
        elif error["type"] == "value_error":
            text = message.removeprefix("Value error, ").rstrip(".")
            parts.append(f"{field}: {text}" if field and text[:1].isupper() else f"{field} {text}".lstrip())
        else:
            parts.append(f"{field or 'it'} is wrong ({message[:1].lower()}{message[1:]}), got {format_value(error['input'])}")
    text = "; ".join(parts)
    return f"{text}." if text.startswith(f"{failure.title}:") else f"{failure.title}: {text}."


class FrozenModel(BaseModel):
    """A frozen model whose constructor raises `InputError`; unknown fields are refused.

    Subclasses that take positional arguments end in `FrozenModel.__init__(self, name=value, ...)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InputError(validation_message(error)) from None

    def __repr__(self) -> str:
        return one_line_repr(type(self).__name__, (part for part in self.__repr_args__() if part[0] != "kind"))

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # Subclasses take positional arguments, and pydantic calls their __init__ when it reads
        # JSON: a damaged file must end as a validation error and not as a TypeError.
        if isinstance(data, Mapping):
            missing = [name for name, field in cls.model_fields.items() if field.is_required() and name not in data]
            if missing:
                raise ValueError(f"{cls.__name__} needs {' and '.join(missing)}, which the input does not have")
        return handler(data)


class StoredModel(FrozenModel):
    """A model kept as JSON text; what cannot be read back is refused in a sentence."""

    stored_as: ClassVar[str]
    """What it is, in that sentence: "a release"."""
    formats: ClassVar[dict[str, type[StoredModel]]] = {}
    """Every such model by the name of its format."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "format" in cls.model_fields:
            cls.formats[cls.model_fields["format"].default] = cls

    def to_json(self) -> str:
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; a damaged text is refused in words."""
        data = parse_json(text, cls.stored_as)
        cls.check_stored(data)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PlanError(validation_message(error)) from None
        except (TypeError, ArithmeticError) as error:  # of some field's own arithmetic, on what no plan holds
            raise PlanError(f"this is not {cls.stored_as}: one of its fields holds what it cannot ({error}).") from None

    @classmethod
    def check_stored(cls, data: Any) -> None:
        """Raise PlanError for what is not worth validating field by field."""


class TaggedModel(FrozenModel):
    """A family of models told apart by `kind`: subclasses register themselves when defined."""

    kinds: ClassVar[dict[str, type[TaggedModel]]]

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        field = cls.model_fields.get("kind")
        if field is None or field.is_required():
            return  # an abstract member of the family
        registered = cls.kinds.setdefault(field.default, cls)
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(f"kind {field.default!r} of {cls.__name__} is already taken by {registered.__name__}; choose another kind.")
        cls.kinds[field.default] = cls

    @classmethod
    def of_kind(cls, value: object) -> object:
        """The member of the family a JSON object describes; anything else is returned as it is."""
        if not isinstance(value, Mapping):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in cls.kinds:
            raise InputError(f"{cls.__name__} has the unknown kind {format_value(kind)}; known kinds are {', '.join(sorted(cls.kinds))}.")
        try:
            return cls.kinds[kind].model_validate(value)
        except ValidationError as error:
            raise InputError(validation_message(error)) from None
