"""A model as ONNX, for programs that have neither fedmpi nor torch.

The encoding is inside. A table's columns are inputs of one column each, by their names: numbers as
double (NaN where missing), text as string ("" where missing). Images are bytes, `images`. Other
rows are `x`. Outputs are `probabilities` (rows × classes) and `predicted`, the likeliest class.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import numpy as np
import torch

import fedmpi
from fedmpi.data.encoding import Categorical, Coded, Numeric
from fedmpi.errors import UserError, said_by
from fedmpi.models.perceptron_passes import layers_of
from fedmpi.scoring.model import Model

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    raise UserError(
        f"--export onnx needs {missing.name}: ./launch/setup.sh onnx, or pip install '.[onnx]'."
    ) from None

OPSET, ML_OPSET = 18, 3
DTYPES = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}


def to_onnx(model: Model) -> onnx.ModelProto:
    """Return the whole model: encoding, network, softmax, names of the classes."""
    graph = Graph(DTYPES[model.network.theta.dtype])
    inputs = encoded_inputs(graph, model)
    logits = network(graph, model, inputs)
    graph.node("Softmax", [logits], "probabilities", axis=1)
    likeliest = graph.node("ArgMax", ["probabilities"], axis=1, keepdims=0)
    graph.node(
        "LabelEncoder",
        [likeliest],
        "predicted",
        domain="ai.onnx.ml",
        keys_int64s=range(len(model.classes)),
        values_strings=model.classes,
    )
    outputs = [
        helper.make_tensor_value_info("probabilities", graph.dtype, ["rows", len(model.classes)]),
        helper.make_tensor_value_info("predicted", TensorProto.STRING, ["rows"]),
    ]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    made = helper.make_graph(graph.nodes, "fedmpi", graph.inputs, outputs, graph.constants)
    whole = helper.make_model(
        made, opset_imports=opsets, producer_name="fedmpi", producer_version=fedmpi.__version__
    )
    whole.ir_version = 9  # of the time of OPSET: a newer one keeps older runtimes out
    helper.set_model_props(whole, {"description": json.dumps(model.description)})
    onnx.checker.check_model(whole)
    return whole


class Graph:
    """Nodes so far; `dtype` is that of the network."""

    def __init__(self, dtype: int) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        output = output or f"fedmpi/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        """Add a constant; return its name."""
        name = f"fedmpi/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def input(self, name: str, kind: int, shape: tuple[int, ...]) -> str:
        """Add an input of any number of rows; return its name."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["rows", *shape]))
        return name

    def cast(self, value: str) -> str:
        """Cast to the network's dtype."""
        return self.node("Cast", [value], to=self.dtype)


def encoded_inputs(graph: Graph, model: Model) -> str:
    """Add what makes the network's inputs of raw rows."""
    if scale := model.description["scale"]:
        x = graph.cast(graph.input("images", TensorProto.UINT8, model.row_shape))
        as_float = np.float64 if graph.dtype == TensorProto.DOUBLE else np.float32
        for kind, name in (("Sub", "mean"), ("Div", "std")):
            x = graph.node(
                kind, [x, graph.constant(np.array(scale[name], as_float)[:, None, None])]
            )
        return x
    if model.encoding is None:
        return graph.cast(graph.input("x", TensorProto.FLOAT, model.row_shape))
    parts: list[str] = []
    for name, rule in model.encoding.columns.items():
        if name in ("probabilities", "predicted"):
            raise UserError(f"--export onnx: a column is called {name!r}, as an output is.")
        parts += (
            encode_text(graph, name, rule)
            if isinstance(rule, Categorical)
            else encode_number(graph, name, rule)
        )
    # float32 in between, as the prepared rows are.
    return graph.cast(graph.node("Concat", parts, axis=1))


def encode_number(graph: Graph, name: str, rule: Numeric | Coded) -> list[str]:
    """Add the inputs of a column of numbers, which are computed in double, as in preparation."""
    given = graph.input(name, TensorProto.DOUBLE, (1,))
    absent = graph.node("IsNaN", [given])
    parts = []
    if isinstance(rule, Numeric):
        if rule.deviation:
            value = graph.node("Where", [absent, graph.constant(np.array(rule.mean)), given])
            value = graph.node("Sub", [value, graph.constant(np.array(rule.center))])
            parts.append(graph.node("Div", [value, graph.constant(np.array(rule.scale))]))
        if rule.missing:
            parts.append(absent)
    else:
        blank = graph.constant(np.array(float(rule.blank)))
        value = graph.node("Where", [absent, blank, given])
        values = graph.constant(np.array([rule.values], dtype=np.float64))
        parts.append(graph.node("Equal", [value, values]))
    return [graph.node("Cast", [part], to=TensorProto.FLOAT) for part in parts]


def encode_text(graph: Graph, name: str, rule: Categorical) -> list[str]:
    """Add the inputs of a column of text: the place of each value, and a 1 there."""
    given = graph.input(name, TensorProto.STRING, (1,))
    known = len(rule.values)
    absent = known + rule.other if rule.missing else -1
    place = graph.node(
        "LabelEncoder",
        [given],
        domain="ai.onnx.ml",
        keys_strings=[*rule.values, ""],
        values_int64s=[*range(known), absent],
        default_int64=known if rule.other else -1,
    )
    places = np.arange(known + rule.other + rule.missing)[None]
    one = graph.node("Equal", [place, graph.constant(places)])
    return [graph.node("Cast", [one], to=TensorProto.FLOAT)]


def network(graph: Graph, model: Model, x: str) -> str:
    """Add the network: perceptrons by hand, all others by torch's exporter."""
    layers = layers_of(model.network.module)
    if not layers:
        return exported(graph, model, x)
    x = graph.node("Flatten", [x]) if model.takes_images else x
    for i, layer in enumerate(layers):
        weight, bias = (graph.constant(p.detach().numpy()) for p in (layer.weight, layer.bias))
        x = graph.node("Gemm", [x, weight, bias], transB=1)
        x = graph.node("Relu", [x]) if i + 1 < len(layers) else x
    return x


def exported(graph: Graph, model: Model, x: str) -> str:
    """Add the nodes that torch's exporter makes of the module."""
    file = io.BytesIO()
    rows = torch.zeros(2, *model.row_shape, dtype=model.network.theta.dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter that needs no further package is the old
            torch.onnx.export(
                model.network.module.eval(),
                (rows,),
                file,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=OPSET,
                input_names=["x"],
                output_names=["logits"],
                dynamic_axes={"x": {0: "rows"}, "logits": {0: "rows"}},
            )
    except Exception as error:  # whatever a model of the user's own makes torch raise
        raise UserError(
            f"--export onnx: torch cannot export the model {model.architecture} ({said_by(error)})."
        ) from error
    made = onnx.compose.add_prefix(onnx.load_from_string(file.getvalue()), "network/").graph
    graph.node("Identity", [x], made.input[0].name)
    graph.nodes += made.node
    graph.constants += made.initializer
    return made.output[0].name
