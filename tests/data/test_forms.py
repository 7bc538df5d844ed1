"""Numbers as people write them."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmpi.data.forms import forms_of, to_numbers


def read(cells: list) -> list[float] | None:
    column = pd.Series(cells, dtype=object)
    forms = forms_of(column)
    return to_numbers(column, forms[0])[0].tolist() if forms else None


@pytest.mark.parametrize(
    "cells, numbers",
    [
        (["1", "-2.5", "1e3"], [1, -2.5, 1000]),
        (["1,5", "2", "-1.234,25"], [1.5, 2, -1234.25]),
        (["1,234", "12"], [1234, 12]),  # a comma before three digits is rather of thousands
        (["1,234,567.5", "12"], [1234567.5, 12]),
        (["1'234.5", "1"], [1234.5, 1]),
        (["1 234,5", "1"], [1234.5, 1]),
        (["12%", "3.5 %"], [12, 3.5]),
        (["12,5%", "3%"], [12.5, 3]),
        (["$1,234.50", "-$3", "5 $"], [1234.5, -3, 5]),
        (["1.234,50 €", "EUR 3"], [1234.5, 3]),
        (["a", "1"], None),
        (["12%", "12"], None),  # of which one may be a mistake
        (["1.5", "1,5"], None),
        (["12:30"], None),
        (["2024-13-45"], None),
        (["true", "false"], None),
    ],
)
def test_a_column_is_read_in_the_one_form_that_it_fits(cells, numbers):
    assert read(cells) == numbers


@pytest.mark.parametrize(
    "write",
    ["%Y-%m-%d", "%Y-%m-%dT00:00:00", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"],
)
def test_dates_are_days(write):
    days = [date(2024, 2, 29), date(1969, 12, 31), date(2001, 1, 13)]
    assert read([day.strftime(write) for day in days]) == [
        (day - date(1970, 1, 1)).days for day in days
    ]


def test_marks_of_missing_numbers_are_no_text():
    values, text = to_numbers(pd.Series(["1", "NA", "?", None, "nan", "many"], dtype=object))
    assert values[0] == 1 and np.isnan(values[1:]).all()
    assert text.tolist() == [False] * 5 + [True]


@given(st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 2)), min_size=1))
def test_any_numbers_are_read_back_with_a_decimal_comma(values):
    cells = [f"{value:,.2f}".translate(str.maketrans(",.", ".,")) for value in values]
    assert read(cells) == values


def test_typed_columns_are_numbers_already():
    times = pd.Series(pd.to_datetime(["1970-01-02", None]))
    np.testing.assert_array_equal(to_numbers(times, "date")[0], [1, np.nan])
    assert to_numbers(pd.Series([True, False]))[0].tolist() == [1, 0]
