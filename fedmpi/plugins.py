"""Methods, datasets, models and metrics of the user's own, named package.module:Class."""

import importlib
from typing import Any, TypeVar

from fedmpi.errors import UserError, said_by

T = TypeVar("T")


def load(flag: str, name: str, given: str | None = None, form: str = "package.module:Class") -> Any:
    """The object that `name` names. A UserError says what the user has `given`."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever an import of somebody's file raises
        given = given or name
        raise UserError(f"{flag} {given}: {said_by(error)}. Give {form}.") from error


def load_class(flag: str, name: str, base: type[T], given: str | None = None) -> type[T]:
    """The class that `name` names, if it is a subclass of `base`."""
    found = load(flag, name, given)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(
            f"{flag} {given or name}: it is not a subclass of {base.__module__}.{base.__name__}."
        )
    return found
