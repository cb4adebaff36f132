"""The texts in a model, wherever they are in it."""

import dataclasses
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def map_texts(model: M, change: Callable[[str], str]) -> M:
    """Return a model with every text in it changed, also those in models and collections inside it.

    Members of enumerations and literals are no texts, and bytes are none either.
    """
    fields = type(model).model_fields
    names = [name for name, field in fields.items() if not _is_literal(field.annotation)]
    changes: dict[str, Any] = {}
    for name in (*names, *(model.model_extra or ())):
        before = getattr(model, name)
        after = _mapped(before, change)
        if after is not before:
            changes[name] = after
    if not changes:
        return model
    changed = model.model_copy(update=changes)
    for name in set(vars(changed)) - set(fields):  # properties that were computed from the texts as they were
        del changed.__dict__[name]
    return changed


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case Enum():
            return value
        case str():
            return change(value)
        case BaseModel():
            return map_texts(value, change)
        case dict():
            return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
        case list() | set() | frozenset():
            return type(value)(_mapped(each, change) for each in value)
        case tuple():
            parts = [_mapped(each, change) for each in value]
            return tuple(parts) if type(value) is tuple else type(value)(*parts)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in dataclasses.fields(value) if each.init]
            return dataclasses.replace(
                value, **{name: _mapped(getattr(value, name), change) for name in names}
            )
        case _:
            return value


def _is_literal(annotation: Any) -> bool:
    if get_origin(annotation) in {Union, UnionType}:
        return all(each is NoneType or _is_literal(each) for each in get_args(annotation))
    return get_origin(annotation) is Literal
