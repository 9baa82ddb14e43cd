"""Base classes of domains, metrics and spaces: frozen, validated, and stored as JSON.

Each is a pydantic model with a `kind`, so that a plan file can contain any of them. Invalid input
raises `InputError` with one sentence that names the field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from metricshuffle.display import one_line_repr
from metricshuffle.errors import (
    InputError,
    MetricShuffleError,
    PlanError,
    argument,
    owner,
    without_owner,
)

# Largest whole number that a double distinguishes from its neighbours.
LARGEST_WHOLE = 2**53 - 1


def format_value(value: object) -> str:
    """Format a value for a message: short, and safe for integers of any size."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and abs(value) >= 10**25:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | tuple | np.ndarray):
        inside = ", ".join(format_value(part) for part in value[:4]) + (
            ", ..." if len(value) > 4 else ""
        )
        return f"({inside})"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _real(value: object) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
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
        raise ValueError(
            "must lie within +-(2^53 - 1), where every whole number is exact in floating "
            f"point, got {format_value(value)}"
        )
    return int(number)


def _positive(value: object) -> float:
    number = _real(value)
    if not number > 0:
        raise ValueError(f"must be > 0, got {format_value(value)}")
    return number


def _or_infinite(value: object) -> object:
    return math.inf if value is None else value


# JSON has no infinity: pydantic writes null, which is read back as infinity, the pessimistic value.
OrInfinite = Annotated[float, BeforeValidator(_or_infinite)]
Real = Annotated[float, BeforeValidator(_real)]
Positive = Annotated[float, BeforeValidator(_positive)]
Whole = Annotated[int, BeforeValidator(_whole)]


def parse_json(text: str, what: str) -> Any:
    """Parse JSON; raises PlanError, in which `what` names the object: "a plan"."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(
            f"this is not {what}: it is not JSON ({error.msg} at line {error.lineno})."
        ) from None
    except (ValueError, RecursionError):
        raise PlanError(
            f"this is not {what}: it nests too deeply, or a number has thousands of digits."
        ) from None


def content_digest(content: Any) -> str:
    """SHA-256 of canonical JSON."""
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def validation_error(failure: ValidationError) -> InputError:
    """Convert an error of pydantic into one sentence that names the model and the fields."""
    parts: list[str] = []
    fields: list[str] = []
    remedy = ""
    for error in failure.errors():
        path = ".".join(str(step) for step in error["loc"])
        field = argument(path) if path else ""
        cause = error.get("ctx", {}).get("error")
        fields += filter(None, [path, cause.field if isinstance(cause, InputError) else None])
        if error["type"] == "extra_forbidden":
            parts.append(f"{path} is not one of its fields")
        elif error["type"] == "missing":
            parts.append(f"{field} is missing")
        elif error["type"] == "literal_error":
            words = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
            parts.append(f"{field} must be one of {words}, got {format_value(error['input'])}")
        elif error["type"] == "bool_type":
            parts.append(f"{field} must be True or False, got {format_value(error['input'])}")
        elif error["type"] == "value_error":
            text = cause.template if isinstance(cause, MetricShuffleError) else str(cause)
            if (
                isinstance(cause, MetricShuffleError)
                and cause.remedy
                and failure.error_count() == 1
            ):
                text = cause.problem
                remedy = f"{cause.remedy.rstrip('.')}."
            text = text if field else without_owner(text)
            link = ": " if field and not text[:1].islower() else " "
            parts.append(f"{field}{link}{text.rstrip('.')}".lstrip())
        else:
            message = f"{error['msg'][:1].lower()}{error['msg'][1:]}"
            got = format_value(error["input"])
            parts.append(f"{field or 'it'} is wrong ({message}), got {got}")
    text = "; ".join(parts)
    sentence = f"{owner(failure.title)}{text}."
    return InputError(sentence, field=fields[0] if fields else None, remedy=remedy)


class FrozenModel(BaseModel):
    """Frozen model whose constructor raises `InputError`; unknown fields are rejected.

    Subclasses that take positional arguments end in `FrozenModel.__init__(self, name=value, ...)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise validation_error(error) from None

    def __repr__(self) -> str:
        return one_line_repr(
            type(self).__name__, (part for part in self.__repr_args__() if part[0] != "kind")
        )

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # Subclasses take positional arguments, and pydantic calls their __init__ when it reads
        # JSON: a damaged file must end as a validation error and not as a TypeError.
        if isinstance(data, Mapping):
            missing = [
                name
                for name, field in cls.model_fields.items()
                if field.is_required() and name not in data
            ]
            if missing:
                raise ValueError(
                    f"{cls.__name__} needs {' and '.join(missing)}, which the input does not have"
                )
        return handler(data)


class StoredModel(FrozenModel):
    """Model that is stored as JSON text; text that cannot be read raises PlanError."""

    stored_as: ClassVar[str]
    """Name of the object in error messages: "a release"."""
    formats: ClassVar[dict[str, type[StoredModel]]] = {}
    """All classes of stored models, keyed by the name of their format."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "format" in cls.model_fields:
            cls.formats[cls.model_fields["format"].default] = cls

    def to_json(self) -> str:
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of `to_json`; raises PlanError if it is damaged."""
        data = parse_json(text, cls.stored_as)
        cls.check_stored(data)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PlanError(str(validation_error(error))) from None
        except (
            TypeError,
            ArithmeticError,
        ) as error:
            # Computing with a field failed: it has numbers that no plan contains.
            raise PlanError(
                f"this is not {cls.stored_as}: one of its fields is invalid ({error})."
            ) from None

    @classmethod
    def check_stored(cls, data: Any) -> None:
        """Raise PlanError for data that can be rejected before the fields are validated."""


class TaggedModel(FrozenModel):
    """Family of models that are distinguished by `kind`; subclasses register themselves."""

    kinds: ClassVar[dict[str, type[TaggedModel]]]

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        field = cls.model_fields.get("kind")
        if field is None or field.is_required():
            return  # an abstract member of the family
        registered = cls.kinds.setdefault(field.default, cls)
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"kind {field.default!r} of {cls.__name__} is already taken by "
                f"{registered.__name__}; choose another kind."
            )
        cls.kinds[field.default] = cls

    @classmethod
    def of_kind(cls, value: object) -> object:
        """Read the model that a JSON object describes; return other values unchanged."""
        if not isinstance(value, Mapping):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in cls.kinds:
            raise InputError(
                f"{cls.__name__} has the unknown kind {format_value(kind)}; known kinds "
                f"are {', '.join(sorted(cls.kinds))}."
            )
        try:
            return cls.kinds[kind].model_validate(value)
        except ValidationError as error:
            raise validation_error(error) from None


def same_values(computed: Any, stored: Any) -> bool:
    """Return whether two JSON values are equal up to rounding on another machine."""
    if isinstance(computed, list):
        return (
            isinstance(stored, list)
            and len(computed) == len(stored)
            and all(map(same_values, computed, stored))
        )
    if isinstance(computed, dict):
        return isinstance(stored, dict) and all(
            same_values(part, stored.get(name)) for name, part in computed.items()
        )
    if isinstance(computed, tuple):
        return same_values(list(computed), stored)
    if isinstance(computed, float) and isinstance(stored, int | float):
        return math.isclose(computed, stored, rel_tol=1e-9, abs_tol=1e-9)
    return bool(computed == stored)
