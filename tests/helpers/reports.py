"""Constants that the tests of the report share."""

FAST = "--dataset synthetic --rows 80 --rounds 4 --eval-every 2 --model logistic --clients 4"
"""Options of a run of some hundredths of a second."""

NASTY = ("</script><b>&amp;", "$x_1$ \"'", "Zürich, 北")
"""Names of groups that a careless page would stumble over."""
