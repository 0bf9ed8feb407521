"""Converts values of NumPy to such of Python, whose dates and durations JSON can hold."""

from typing import Any


def python_value(value: Any) -> Any:
    """Return a scalar or array of NumPy as Python's own values; a date that has none is text."""
    return _python_time(value) if value.dtype.kind in "mM" else value.tolist()


def _python_time(time: Any) -> Any:
    if time.ndim:
        return [_python_time(each) for each in time]
    plain = time.tolist()
    if type(plain) is not int:
        return plain
    # NumPy counts where Python's types are too coarse (nanoseconds) or end (in the year 9999).
    import numpy  # noqa: PLC0415 - already loaded, or there would be no value of it

    if numpy.datetime_data(time.dtype)[0] == "ns":
        rounded = time.astype(f"{time.dtype.kind}8[us]")
        plain = rounded.tolist() if rounded == time else plain
    return str(time) if type(plain) is int else plain
