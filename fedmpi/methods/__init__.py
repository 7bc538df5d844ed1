"""The methods, one file each, by the names of the command line."""

import contextlib

from fedmpi.errors import UserError, unknown_name
from fedmpi.methods.method import Method
from fedmpi.methods.option import Option
from fedmpi.plugins import load_class

FILES = {
    "fedminmax": "fedmpi.methods.fedminmax:FedMinMax",
    "centralized": "fedmpi.methods.centralized:Centralized",
    "localfedminmax": "fedmpi.methods.localfedminmax:LocalFedMinMax",
    "afl": "fedmpi.methods.afl:AFL",
    "fedavg": "fedmpi.methods.fedavg:FedAvg",
    "qfedavg": "fedmpi.methods.qfedavg:QFedAvg",
    "term": "fedmpi.methods.term:TERM",
    "ditto": "fedmpi.methods.ditto:Ditto",
    "fedmgda": "fedmpi.methods.fedmgda:FedMGDA",
    "propfair": "fedmpi.methods.propfair:PropFair",
    "scaffold": "fedmpi.methods.scaffold:Scaffold",
    "fedprox": "fedmpi.methods.fedprox:FedProx",
    "bgl": "fedmpi.methods.bgl:BoundedGroupLoss",
    "scaffpd": "fedmpi.methods.scaffpd:ScaffPD",
    "drfa": "fedmpi.methods.drfa:DRFA",
    "fedfb": "fedmpi.methods.fedfb:FedFB",
    "gifair": "fedmpi.methods.gifair:GIFAIR",
    "fairfed": "fedmpi.methods.fairfed:FairFed",
    "eominmax": "fedmpi.methods.eominmax:EqualOpportunityMinMax",
}


def all_options(own: str = "") -> dict[str, Option]:
    """Options of all methods by name; those of the user's `own` method come first."""
    names = [own, *FILES] if ":" in own else list(FILES)
    options: dict[str, Option] = {}
    for name in names:
        with contextlib.suppress(UserError):  # the caller's own `find` reports a missing method
            for option in find(name).all_options():
                options.setdefault(option.name, option)
    return options


def find(name: str) -> type[Method]:
    """Class of the method: by a name in FILES, or package.module:Class for one of your own."""
    if name not in FILES and ":" not in name:
        raise unknown_name("method", name, FILES)
    method = load_class("--method", FILES.get(name, name), Method, given=name)
    for option in method.options:
        if not isinstance(option, Option):
            raise UserError(
                f"--method {name}: its options has {option!r}, where an Option is expected; see "
                "fedmpi/methods/option.py."
            )
    return method
