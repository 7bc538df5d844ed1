"""Forms in which people write numbers: with a decimal comma, as a percentage, as a date.

A column has one form, which all of its cells fit. A date is the number of days since 1970.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

NO_NUMBER = (
    *("?", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Marks that stand for a missing value among numbers. Among texts they are values."""

SPACE = " '\u2019\u00a0\u202f"
"""Marks between thousands, beside the comma or the dot."""
EXPONENT = r"(e[+-]?\d+)?"
POINTS = {
    "plain": None,
    "thousands": rf"[+-]?(\d{{1,3}}([,{SPACE}]\d{{3}})+|\d+)(\.\d*)?{EXPONENT}",
    "decimal comma": rf"[+-]?(\d{{1,3}}([.{SPACE}]\d{{3}})+|\d+)(,\d*)?{EXPONENT}",
}
SIGN = r"[$€£¥₹₽₩]|USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|CAD|AUD|Fr\.|kr|zł"
UNITS = {
    "": None,
    "percent": re.compile(r"(?P<number>.*\d)\s*%"),
    "currency": re.compile(rf"(?P<minus>-)?(({SIGN})\s*(?P<one>.*\d)|(?P<two>.*\d)\s*({SIGN}))"),
}
DATES = {
    "date": ("ISO8601", r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d.*)?)?"),
    "date year/month/day": ("%Y/%m/%d", r"\d{4}/\d\d?/\d\d?"),
    "date day.month.year": ("%d.%m.%Y", r"\d\d?\.\d\d?\.\d{4}"),
    "date day.month.year time": ("%d.%m.%Y %H:%M", r"\d\d?\.\d\d?\.\d{4} \d\d?:\d\d"),
    "date day/month/year": ("%d/%m/%Y", r"\d\d?/\d\d?/\d{4}"),
    "date day/month/year time": ("%d/%m/%Y %H:%M", r"\d\d?/\d\d?/\d{4} \d\d?:\d\d"),
    "date month/day/year": ("%m/%d/%Y", r"\d\d?/\d\d?/\d{4}"),
    "date month/day/year time": ("%m/%d/%Y %H:%M", r"\d\d?/\d\d?/\d{4} \d\d?:\d\d"),
    "date day-month-year": ("%d-%m-%Y", r"\d\d?-\d\d?-\d{4}"),
}
"""Formats of pandas for dates, and what cells of each look like."""
PLAIN = "plain"
FORMS = (
    *(f"{unit} {point}".strip() for unit in UNITS for point in POINTS),
    *DATES,
)
"""Names of the forms, the first that fits being taken."""
EPOCH = pd.Timestamp(0, tz="UTC")


def forms_of(column: pd.Series) -> tuple[str, ...]:
    """Return the forms that all cells of the column fit: none for text."""
    cells = pd.Series(known_cells(column), dtype=object)
    if not len(cells) or pd.api.types.is_numeric_dtype(column.dtype):
        return FORMS
    plain = read(cells, PLAIN)
    if not np.isnan(plain).any():  # whole numbers have no point that could be another's comma
        return FORMS[:3] if (plain == np.trunc(plain)).all() else FORMS[:2]
    # The first few decide for nearly all columns of text.
    few = [form for form in FORMS[1:] if not np.isnan(read(cells[:20], form)).any()]
    return tuple(form for form in few if not np.isnan(read(cells, form)).any())


def known_cells(column: pd.Series) -> np.ndarray:
    """Return the different cells of a column, without those that stand for a missing value."""
    cells = column[column.notna()].unique()
    return cells[~pd.Series(cells).isin(NO_NUMBER).to_numpy()] if len(cells) else cells


def to_numbers(column: pd.Series, form: str = PLAIN) -> tuple[np.ndarray, np.ndarray]:
    """The column as float64, NaN where it is no number of this form; and which cells are text.

    A missing cell, and one of NO_NUMBER, are neither.
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        values = days(pd.to_datetime(column, utc=True))
    elif pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif form == PLAIN:
        column = column.mask(column.isin(NO_NUMBER))
        values = read(column, form)
    else:
        column = column.mask(column.isin(NO_NUMBER))
        codes, cells = pd.factorize(column)
        read_cells = read(pd.Series(cells, dtype=object), form)
        values = np.append(read_cells, np.nan)[codes]
    return values, np.isnan(values) & column.notna().to_numpy()


def read(cells: pd.Series, form: str) -> np.ndarray:
    """Cells as float64, NaN for those that are not of this form."""
    if form == PLAIN:
        return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if form in DATES:
        pandas_format, pattern = DATES[form]
        alike = cells.where(matches(cells, re.compile(pattern)))
        return days(pd.to_datetime(alike, format=pandas_format, errors="coerce", utc=True))
    unit, point = form.split(" ", 1) if form.startswith(("percent", "currency")) else ("", form)
    return np.array([number_of(cell, unit, point) for cell in cells], dtype=np.float64)


def matches(cells: pd.Series, pattern: re.Pattern) -> np.ndarray:
    return np.array([isinstance(c, str) and bool(pattern.fullmatch(c)) for c in cells], dtype=bool)


def number_of(cell: object, unit: str, point: str) -> float:
    """Return the number that a cell has in this form, or NaN."""
    text, factor = str(cell).strip().replace("\u2212", "-"), 1.0
    if symbol := UNITS[unit]:
        found = symbol.fullmatch(text)
        if not found:
            return np.nan
        parts = found.groupdict()
        factor = -1.0 if parts.get("minus") else 1.0
        text = (parts.get("number") or parts.get("one") or parts.get("two") or "").strip()
    if pattern := POINTS[point]:
        if not re.fullmatch(pattern, text, re.IGNORECASE):
            return np.nan
        thousands, comma = (".", ",") if point == "decimal comma" else (",", ".")
        text = re.sub(rf"[{thousands}{SPACE}]", "", text).replace(comma, ".")
    try:
        return factor * float(text)
    except ValueError:
        return np.nan


def days(times: pd.Series) -> np.ndarray:
    """Times as days since 1970, NaN for none."""
    return ((times - EPOCH) / pd.Timedelta(days=1)).to_numpy(np.float64, na_value=np.nan)
