"""A trained model that is whole: it takes raw rows, and gives classes and probabilities.

model.pt of a run holds the weights (`averaged` and `last`) and a `description`, which is plain
data: the architecture by name, the encoding of the columns or the scale of images, the classes, the
groups, what it was trained on, and the groups' figures. torch.load(weights_only=True) loads it, and
runs no code from it. MPI is neither started nor imported.

    model = Model.load("runs/adult-PSG-fedminmax-s0")
    model.predict(frame)              # names of classes
    model.predict_proba(frame)        # rows × classes
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedmpi import models
from fedmpi.errors import UserError, said_by
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES, Loss
from fedmpi.models.micro_batch import rows_of_a_pass

if TYPE_CHECKING:
    import pandas as pd

    from fedmpi.data.encoding import Encoding
    from fedmpi.scoring.inputs import Tally

FILE = "model.pt"
FORMAT = 1
"""Version of the description. Raise it when an older fedmpi could not use a newer model."""
WEIGHTS = ("averaged", "last")


@dataclass(frozen=True, eq=False)
class Model:
    """Weights and description of a model. `load` makes one."""

    states: dict[str, dict[str, torch.Tensor]]
    description: dict[str, Any]
    weights: str
    """Which of the weights score: "averaged" or "last"."""
    architecture: str
    """Name of the function that builds the module."""

    @classmethod
    def load(
        cls,
        path: str | Path,
        weights: str | None = None,
        architecture: str | None = None,
        content: bytes | None = None,
    ) -> Model:
        """Load the model of a run's folder, or of a file model.pt, whose `content` may be given.

        `weights` are those that the run's method reports unless given. A file must not choose which
        code is imported: the `architecture` of a model of the user's own, package.module:function,
        has to be given again.
        """
        path = file_of(path)
        contents = read(path, content)
        description = contents["description"]
        named, weights = description["model"], weights or description["reports"]
        if weights not in WEIGHTS:
            raise UserError(f"--weights {weights}: choose {' or '.join(WEIGHTS)}.")
        if named not in models.MODELS and architecture is None:
            raise UserError(
                f"{path} is of a model of the user's own, {named}, and a file must not choose what "
                f"is imported: add --model {named}, if that is your code."
            )
        states = {name: contents[name] for name in WEIGHTS}
        model = cls(states, description, weights, architecture or named)
        model.network  # noqa: B018 (built now: what does not fit is told before rows are read)
        return model

    def save(self, path: str | Path) -> None:
        """Write the model as one file, from which `load` makes it again."""
        torch.save({**self.states, "description": self.description}, path)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns of `predict_proba`."""
        return tuple(self.description["classes"])

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that the model was trained to be fair to."""
        return tuple(self.description["groups"])

    @property
    def figures(self) -> dict[str, dict]:
        """Rows, risk, accuracy and weight of each group in the run."""
        return self.description["figures"]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of inputs: one number for a table, three for an image."""
        return tuple(self.description["row_shape"])

    @property
    def takes_images(self) -> bool:
        """Return whether rows are images rather than rows of a table."""
        return len(self.row_shape) > 1

    @property
    def loss(self) -> Loss:
        """Loss that the model was trained with, of each row."""
        return LOSSES[self.description["loss"]]

    @cached_property
    def encoding(self) -> Encoding | None:
        """Rules by which a table becomes inputs and labels; None for images and other arrays.

        A dataset of the user's own that tells no rules has its features as columns of numbers.
        """
        from fedmpi.data.encoding import Encoding, Numeric

        if told := self.description["encoding"]:
            return Encoding.from_json(told)
        features = self.description["features"]
        if self.takes_images or len(features) != self.row_shape[0]:
            return None
        return Encoding({name: Numeric(0.0, 1.0, 0.0, 1.0, missing=False) for name in features})

    @cached_property
    def network(self) -> FlatModel:
        """Module with its weights, and the scale of images."""
        shape, dtype = self.row_shape, getattr(torch, self.description["dtype"])
        module = models.build(self.architecture, shape, len(self.classes), seed=0)
        try:
            module.to(dtype).load_state_dict(self.states[self.weights])
        except (RuntimeError, AttributeError) as error:
            raise UserError(
                f"the weights do not fit the model {self.architecture}: {said_by(error)}."
            ) from error
        network = FlatModel(
            module, dtype, torch.device("cpu"), scalars=0, scale=self.description["scale"]
        )
        network.drop_sums()
        return network

    @cached_property
    def rows_of_a_pass(self) -> int:
        dtype = self.network.theta.dtype
        return rows_of_a_pass(self.architecture, self.network.module, dtype.itemsize)

    def encode(self, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return the inputs of raw rows: float32 of a table, bytes of images."""
        from fedmpi.scoring.inputs import Tally

        return self.encode_counted(rows, Tally())

    def _encode_aloud(self, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return the inputs of raw rows; warn of what is odd in them."""
        from fedmpi.scoring.inputs import Tally

        tally = Tally()
        inputs = self.encode_counted(rows, tally)
        for line in tally.lines():
            warnings.warn(line, stacklevel=3)
        return inputs

    def encode_counted(self, rows: pd.DataFrame | np.ndarray, tally: Tally) -> np.ndarray:
        """Return the inputs of raw rows; add what is odd in them to `tally`."""
        if isinstance(rows, np.ndarray):
            tally.rows += len(rows)
            return self.check_array(rows)
        from fedmpi.scoring.inputs import encode, require

        if self.encoding is None:
            what = "images" if self.takes_images else "rows"
            raise UserError(
                f"a table was given, and the model takes {what} of {_times(self.row_shape)}: give "
                "an array (.npy, .npz)."
            )
        require(self.encoding.columns, rows.columns)
        return encode(self.encoding, rows, tally)

    def check_array(self, x: np.ndarray) -> np.ndarray:
        """Return rows that are inputs already, images or encoded; UserError if they are not."""
        shape, bytes_wanted = self.row_shape, self.description["scale"] is not None
        if x.shape[1:] != shape and bytes_wanted and (1, *x.shape[1:]) == shape:
            x = x[:, None]  # grey images are often without the channel
        if x.ndim != 1 + len(shape) or x.shape[1:] != shape:
            raise UserError(
                f"rows of {_times(x.shape[1:])} were given, the model takes {_times(shape)}"
                f"{' (channels × height × width)' if len(shape) == 3 else ''}."
            )
        if bytes_wanted and x.dtype != np.uint8:
            raise UserError(
                f"images of {x.dtype} were given, the model takes bytes (uint8), 0 to 255."
            )
        if not bytes_wanted:
            if x.dtype.kind not in "fiub":
                raise UserError(f"an array of {x.dtype} was given, the model takes numbers.")
            x = x.astype(np.float32, copy=False)
            if not np.isfinite(x).all():
                raise UserError("some numbers of the array are not finite: correct them.")
        return x

    @torch.no_grad()
    def logits(self, x: np.ndarray) -> torch.Tensor:
        """Return the logits of inputs, which `encode` makes: rows × classes."""
        found = torch.empty(len(x), len(self.classes), dtype=self.network.theta.dtype)
        for rows in self._passes(len(x)):
            part = torch.from_numpy(np.ascontiguousarray(x[rows]))
            if self.network.scale is None:
                part = part.to(found.dtype)
            found[rows] = self.network(part)
        return found

    def _passes(self, rows: int) -> Iterator[slice]:
        for start in range(0, rows, self.rows_of_a_pass):
            yield slice(start, start + self.rows_of_a_pass)

    def predict_proba(self, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return the probability of each class, rows × classes in the order of `classes`."""
        return torch.softmax(self.logits(self._encode_aloud(rows)), dim=1).numpy()

    def predict(self, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return the name of the likeliest class of each row."""
        likeliest = self.logits(self._encode_aloud(rows)).argmax(1).numpy()
        return np.array(self.classes, dtype=object)[likeliest]


def file_of(path: str | Path) -> Path:
    """Return the model's file, where the folder of a run may be given."""
    path = Path(path)
    return path / FILE if path.is_dir() else path


def read(path: Path, content: bytes | None = None) -> dict:
    """Return what is in model.pt; UserError unless it is a whole model."""
    try:
        file = path if content is None else io.BytesIO(content)
        contents = torch.load(file, map_location="cpu", weights_only=True)
        described = contents.get("description")
        if described is not None and described["format"] != FORMAT:
            raise UserError(
                f"{path} has format {described['format']}, this fedmpi reads {FORMAT}: use the "
                "version of fedmpi that wrote it."
            )
    except FileNotFoundError:
        raise UserError(
            f"there is no {path}: give the folder of a finished run, or its {FILE}."
        ) from None
    except UserError:
        raise
    except Exception as error:  # whatever foreign contents make torch raise
        raise UserError(f"{path} cannot be read as a model ({said_by(error)}).") from error
    if described is None:
        raise UserError(
            f"{path} has weights only, from before models could take raw rows: train it again, "
            "with --force."
        )
    return contents


def plain(value: dict) -> dict:
    """Return `value` as JSON would have it: nothing but dict, list, str, numbers and None."""
    return json.loads(json.dumps(value))


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "one number"
