"""Lines of predictions."""

import io

import numpy as np
import pandas as pd
import pytest

from fedmpi.scoring.prediction import fixed, lines, read_ahead


def test_numbers_are_written_as_python_writes_them():
    p = np.random.default_rng(0).dirichlet([0.05, 1, 1], size=500).astype(np.float32)
    p[0], p[1] = (0, 1, 0), (0.5, 0.25, 0.25)
    big = p[(p > 1e-4).all(axis=1)]
    assert fixed(big) == [b",%.9f,%.9f,%.9f\n" % tuple(row) for row in big.tolist()]
    text = b"a,b,c,d\n" + b"".join(lines(p, ("x", 'y "q"', "z,1")))
    written = pd.read_csv(
        io.BytesIO(text.replace(b"a,b,c,d\n", b"n,a,b,c,d\n").replace(b"\n,", b"\n0,"))
    )
    np.testing.assert_allclose(written[["b", "c", "d"]], p, rtol=1e-5, atol=1e-30)
    assert written["a"].tolist() == np.array(["x", 'y "q"', "z,1"])[p.argmax(1)].tolist()


def test_reading_ahead_keeps_the_order_and_the_error():
    def numbers():
        yield from range(5)
        raise ValueError("five")

    seen = []
    with pytest.raises(ValueError, match="five"):
        for number in read_ahead(numbers()):
            seen.append(number)
    assert seen == [0, 1, 2, 3, 4]
