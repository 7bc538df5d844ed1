import math

import pytest
import torch

from fedmpi.models.losses import brier, cross_entropy

# Logits whose softmax is (1/2, 1/4, 1/4).
LOGITS = torch.log(torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)).repeat(3, 1)
Y = torch.tensor([0, 1, 2])


def naive_brier(logits, y):
    p = torch.exp(logits) / torch.exp(logits).sum(dim=1, keepdim=True)
    return ((p - torch.eye(logits.shape[1], dtype=p.dtype)[y]) ** 2).sum(dim=1)


def test_cross_entropy_by_hand():
    by_hand = [math.log(2), math.log(4), math.log(4)]
    assert cross_entropy(LOGITS, Y).tolist() == pytest.approx(by_hand, rel=1e-15)


def test_brier_by_hand():
    """1/4 + 1/16 + 1/16 where the target is the likely class, 1/4 + 9/16 + 1/16 where not."""
    assert brier(LOGITS, Y).tolist() == pytest.approx([0.375, 0.875, 0.875], rel=1e-15)


def test_brier_of_a_coin_is_a_half():
    """Two classes at 1/2: 1/4 + 1/4, summed over the classes, not averaged."""
    assert brier(torch.zeros(1, 2), torch.tensor([1])).item() == 0.5


def test_losses_of_certainty():
    """No infinity of exp, and no NaN of inf - inf, at logits that no exp can hold."""
    sure = torch.tensor([[1e4, -1e4]], dtype=torch.float64)
    right, wrong = torch.tensor([0]), torch.tensor([1])
    assert brier(sure, right).item() == 0
    assert brier(sure, wrong).item() == 2
    assert cross_entropy(sure, right).item() == 0
    assert cross_entropy(sure, wrong).item() == 2e4


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_brier_and_its_gradient_are_those_of_the_formula(classes):
    generator = torch.Generator().manual_seed(classes)
    logits = 3 * torch.randn(200, classes, dtype=torch.float64, generator=generator)
    y = torch.randint(classes, (200,), generator=generator)
    weights = torch.rand(200, dtype=torch.float64, generator=generator)
    ours, naive = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    losses, expected = brier(ours, y), naive_brier(naive, y)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-14)
    (weights * losses).sum().backward()
    (weights * expected).sum().backward()
    torch.testing.assert_close(ours.grad, naive.grad, rtol=1e-12, atol=1e-15)


def test_losses_are_of_each_row():
    for loss in (brier, cross_entropy):
        rows = loss(LOGITS, Y)
        assert rows.shape == (3,)
        for i in range(3):
            assert rows[i].item() == loss(LOGITS[i : i + 1], Y[i : i + 1]).item()
