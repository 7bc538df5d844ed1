"""The methods, one file each, by the names of the command line."""

import importlib

from fedmpi.errors import UserError, said_by, unknown_name
from fedmpi.methods.method import Method

FILES = {
    "fedminmax": "fedmpi.methods.fedminmax:FedMinMax",
    "centralized": "fedmpi.methods.centralized:Centralized",
    "localfedminmax": "fedmpi.methods.localfedminmax:LocalFedMinMax",
    "afl": "fedmpi.methods.afl:AFL",
    "fedavg": "fedmpi.methods.fedavg:FedAvg",
    "qfedavg": "fedmpi.methods.qfedavg:QFedAvg",
    "term": "fedmpi.methods.term:TERM",
}


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
    return method
