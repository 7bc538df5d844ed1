"""The methods, one file each, by the names of the command line."""

import contextlib
import importlib

from fedmpi.errors import UserError, said_by, unknown_name
from fedmpi.methods.method import Method
from fedmpi.methods.option import Option

FILES = {
    "fedminmax": "fedmpi.methods.fedminmax:FedMinMax",
    "centralized": "fedmpi.methods.centralized:Centralized",
    "localfedminmax": "fedmpi.methods.localfedminmax:LocalFedMinMax",
    "afl": "fedmpi.methods.afl:AFL",
    "fedavg": "fedmpi.methods.fedavg:FedAvg",
    "qfedavg": "fedmpi.methods.qfedavg:QFedAvg",
    "term": "fedmpi.methods.term:TERM",
}


def all_options(own: str = "") -> dict[str, Option]:
    """The options of all methods by name, before them those of a method of the user's `own`."""
    names = [own, *FILES] if ":" in own else list(FILES)
    options: dict[str, Option] = {}
    for name in names:
        with contextlib.suppress(UserError):  # of a method that is not there `find` will speak
            for option in find(name).options:
                options.setdefault(option.name, option)
    return options


def find(name: str) -> type[Method]:
    """The method's class: a name of ours, or package.module:Class for one of your own."""
    if name not in FILES and ":" not in name:
        raise unknown_name("method", name, FILES)
    file, _, class_name = FILES.get(name, name).partition(":")
    try:
        method = getattr(importlib.import_module(file), class_name)
    except Exception as error:  # whatever an import of somebody's file raises
        raise UserError(f"--method {name}: {said_by(error)}. Give package.module:Class.") from error
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise UserError(f"--method {name}: it is not a subclass of fedmpi.methods.method.Method.")
    for option in method.options:
        if not isinstance(option, Option):
            raise UserError(
                f"--method {name}: its options has {option!r}, where an Option is expected; see "
                "fedmpi/methods/option.py."
            )
    return method
