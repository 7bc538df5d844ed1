"""The step of theta: from the summed change of a round to the next theta, on every rank alike.

The sum over the clients is a change D = sum_k (n_k / n)(theta_k - theta). With one step a round it
is -lr times the gradient of one machine with all rows, so these are the usual optimizers on the
usual gradient, and Lemma 2 holds for each of them; with local epochs they are FedAvgM (Hsu et al.
2019), FedAdam and FedYogi (Reddi et al. 2021). No message is added to a round: every rank has the
same D.

    D        <- D min(1, max_norm / |G|),              D = -lr G
    D        <- s_t (D - lr * weight_decay * theta),   s_t = 1, or (1 + cos(pi (t-1) / T)) / 2
    sgd         theta <- theta + D
    nesterov    v <- momentum v + D,   theta <- theta + D + momentum v
    adam        m <- .9 m + .1 D,   u <- .999 u + .001 D^2,
                theta <- theta + step m' / (sqrt(u') + 1e-8 step), m' and u' without their bias
    fedadam     m <- .9 m + .1 D,   u <- .99 u + .01 D^2,   u starts at tau^2,
                theta <- theta + step m / (sqrt(u) + tau)
    yogi        as fedadam, but u <- u - .01 D^2 sign(u - D^2)

adam is torch's; fedadam and yogi are Reddi et al.'s Algorithm 2, with their betas and tau = .001,
and without Adam's correction of the bias. Their step is lr for methods that take one step a round,
for D is lr times a gradient there (so tau is lr times --tau), and --server-lr for methods with
local epochs, whose lr is the clients'. The weight decay of the others is that of a term
weight_decay / 2 |theta|^2 in the objective; that of these three does not go through m and u
(Loshchilov and Hutter 2019). With --max-norm a gradient that is longer is shortened (Pascanu,
Mikolov, Bengio 2013): weights of groups or clients make few rows count for much, and one such batch
can end a network in one class. With local epochs D itself is what is shortened.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from fedmpi.errors import UserError, unknown_name
from fedmpi.methods.option import Option
from fedmpi.plugins import load_class

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.methods.method import Method
    from fedmpi.models.flat import FlatModel
    from fedmpi.run.config import Config

SCHEDULES = ("constant", "cosine")
SERVER_LR, TAU = 0.01, 1e-3
NORM_ROW = 1024

OF_OURS = "sgd, nesterov, adam, fedadam, yogi, newton, package.module:Class"

# None is what the paper does: so a run that is without them is known again by its identity.
STEP_OPTIONS = (
    Option("optimizer", str, label="{}", help=OF_OURS),
    Option("momentum", at_least=0, below=1, label="momentum {}", help="of nesterov (.9)"),
    Option(
        "schedule",
        str,
        choices=SCHEDULES,
        label="{} steps",
        help="constant, or cosine: steps fall to 0 at the end (constant)",
    ),
    Option(
        "weight_decay",
        at_least=0,
        label="weight decay {}",
        help="pulls theta to 0 (fast with mlp, mlp4, logistic: 30 / rows, at most .03; else 0)",
    ),
    Option(
        "max_norm",
        above=0,
        label="gradient at most {}",
        help="shorten the federation's gradient (with local epochs: its change) to this norm",
    ),
    Option(
        "server_lr",
        above=0,
        label="server step {}",
        help=f"step of adam, fedadam and yogi for methods with local epochs ({SERVER_LR})",
    ),
    Option(
        "tau",
        above=0,
        label="τ = {}",
        help=f"of fedadam and yogi: smaller is more adaptive ({TAU})",
    ),
)


class Optimizer:
    """One way to step theta. A subclass overrides `step` and, if it keeps something, `state`."""

    shared: dict[str, Tensor]
    """What `state` gave, as it is now."""

    second_order: ClassVar[bool] = False
    """Whether the clients sum gradients of groups and a Hessian, and the server alone steps."""

    def __init__(self, config: Config) -> None:
        self.config, self.shared = config, {}

    def state(self, model: FlatModel) -> dict[str, Tensor]:
        """First values of what the optimizer keeps from round to round: the `shared` of `step`."""
        return {}

    def step(self, theta: Tensor, change: Tensor, shared: dict[str, Tensor], t: int) -> None:
        """Go from theta to the next theta; change `theta` and the tensors of `shared` in place."""
        raise NotImplementedError

    def apply(self, method: Method, model: FlatModel, t: int) -> None:
        """Step the model's theta by what the method makes of the sums of round t."""
        change, limit = method.update(model), self.config.options.get("max_norm")
        if limit is not None:
            shorten(change, limit * self.unit)
        self.step(model.theta, change, self.shared, t)

    def vectors_of(self, size: int, groups: int) -> int:
        """Number of vectors of theta's `size` that the step needs summed beside the change."""
        return 0

    def begin_again(self) -> None:
        """Forget what holds for the rows of dead ranks alone."""

    def scheduled(self, t: int) -> float:
        """The factor of the step in round t."""
        if self.config.options.get("schedule") != "cosine":
            return 1.0
        return (1 + math.cos(math.pi * (t - 1) / self.config.rounds)) / 2

    @property
    def unit(self) -> float:
        """Number that D is a multiple of: the lr of one step a round, whose D is lr × gradient."""
        return 1.0 if self.config.local_epochs else self.config.lr

    @property
    def adaptive_step(self) -> float:
        """Step of the optimizers that divide by the size of past changes."""
        c = self.config
        return (c.options.get("server_lr") or SERVER_LR) if c.local_epochs else c.lr

    def decayed(self, theta: Tensor, change: Tensor, t: int) -> Tensor:
        """The change, with the pull of the weight decay, times the factor of the round."""
        decay, factor = self.config.decay, self.scheduled(t)
        if decay:
            change.sub_(theta, alpha=self.config.lr * decay)
        return change if factor == 1.0 else change.mul_(factor)


class SGD(Optimizer):
    """The paper's step, unless it is scheduled or decays."""

    def step(self, theta: Tensor, change: Tensor, shared: dict[str, Tensor], t: int) -> None:
        theta.add_(self.decayed(theta, change, t))


class Nesterov(Optimizer):
    """Nesterov's momentum, in the form of torch.optim.SGD(nesterov=True)."""

    def state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"momentum": model.theta.detach().new_zeros(model.size)}

    def step(self, theta: Tensor, change: Tensor, shared: dict[str, Tensor], t: int) -> None:
        given = self.config.options.get("momentum")
        momentum = 0.9 if given is None else given
        change = self.decayed(theta, change, t)
        v = shared["momentum"].mul_(momentum).add_(change)
        theta.add_(change).add_(v, alpha=momentum)


class Adam(Optimizer):
    """Adam with decoupled weight decay, in the form of torch.optim.AdamW."""

    betas = (0.9, 0.999)
    eps = 1e-8

    def state(self, model: FlatModel) -> dict[str, Tensor]:
        zeros = model.theta.detach().new_zeros(model.size)
        return {"mean": zeros, "square": zeros.clone()}

    def step(self, theta: Tensor, change: Tensor, shared: dict[str, Tensor], t: int) -> None:
        rate, decay = self.adaptive_step * self.scheduled(t), self.config.decay
        first, second = self.betas
        mean = shared["mean"].lerp_(change, 1 - first)
        square = shared["square"].mul_(second).addcmul_(change, change, value=1 - second)
        # D is lr times a gradient, and so are mean and root: eps has to be as well.
        root = (square / (1 - second**t)).sqrt_().add_(self.eps * self.unit)
        if decay:
            theta.mul_(1 - rate * decay)
        theta.addcdiv_(mean, root, value=rate / (1 - first**t))


class FedAdam(Optimizer):
    """Adam in the form of Reddi et al. (2021), Algorithm 2."""

    betas = (0.9, 0.99)

    @property
    def tau(self) -> float:
        return (self.config.options.get("tau") or TAU) * self.unit

    def state(self, model: FlatModel) -> dict[str, Tensor]:
        zeros = model.theta.detach().new_zeros(model.size)
        return {"mean": zeros, "square": zeros + self.tau**2}

    def step(self, theta: Tensor, change: Tensor, shared: dict[str, Tensor], t: int) -> None:
        rate, decay = self.adaptive_step * self.scheduled(t), self.config.decay
        mean = shared["mean"].lerp_(change, 1 - self.betas[0])
        self.take_square(shared["square"], change.square())
        if decay:
            theta.mul_(1 - rate * decay)
        theta.addcdiv_(mean, shared["square"].sqrt().add_(self.tau), value=rate)

    def take_square(self, square: Tensor, new: Tensor) -> None:
        """Take the squares of a change into the mean of squares, in place."""
        square.lerp_(new, 1 - self.betas[1])


class Yogi(FedAdam):
    """FedYogi, of the same algorithm: the mean of squares grows as Adam's, but falls slowly."""

    def take_square(self, square: Tensor, new: Tensor) -> None:
        square.addcmul_(new, (square - new).sign_(), value=self.betas[1] - 1)


OPTIMIZERS = {
    "sgd": "fedmpi.methods.optimizer:SGD",
    "nesterov": "fedmpi.methods.optimizer:Nesterov",
    "adam": "fedmpi.methods.optimizer:Adam",
    "fedadam": "fedmpi.methods.optimizer:FedAdam",
    "yogi": "fedmpi.methods.optimizer:Yogi",
    "newton": "fedmpi.methods.newton:Newton",
}


def shorten(vector: Tensor, limit: float) -> None:
    """Scale `vector` in place to a norm of at most `limit`, by the same factor on every rank.

    Ranks differ in their threads, on which the order of one long sum depends. So the vector is cut
    into rows, of which a thread sums each by itself, and their norms are put together in order.
    """
    whole = len(vector) - len(vector) % NORM_ROW
    rows = vector[:whole].view(-1, NORM_ROW).norm(dim=1)
    norm = math.hypot(*rows.tolist(), vector[whole:].norm().item())
    if norm > limit:
        vector.mul_(limit / norm)


def find(name: str | None) -> type[Optimizer]:
    """The optimizer's class: a name of ours, or package.module:Class for one of your own."""
    if name is None:
        return SGD
    if name not in OPTIMIZERS and ":" not in name:
        raise unknown_name("--optimizer", name, OPTIMIZERS)
    return load_class("--optimizer", OPTIMIZERS.get(name, name), Optimizer, given=name)


def check(options: dict, trains_locally: bool) -> None:
    """Refuse an option that would do nothing with this optimizer."""
    name = options.get("optimizer") or "sgd"
    find(name)
    if options.get("momentum") is not None and name in ("sgd", "adam", "fedadam", "yogi"):
        raise UserError(f"--momentum does nothing with --optimizer {name}: use nesterov.")
    if options.get("server_lr") is not None and (name in ("sgd", "nesterov") or not trains_locally):
        raise UserError(
            "--server-lr is the step of --optimizer adam, fedadam and yogi for methods with local "
            "epochs: leave it out, or use --lr."
        )
    if options.get("tau") is not None and name in OPTIMIZERS and name not in ("fedadam", "yogi"):
        raise UserError(f"--tau does nothing with --optimizer {name}: use fedadam or yogi.")
