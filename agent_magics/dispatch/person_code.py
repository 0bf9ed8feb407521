"""Finds the frames in which a signal may raise: those of the person's code, or a model's.

Raised elsewhere, it would end the kernel's event loop, or interrupt our drawing half-way.
"""

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_of_person: set[CodeType] = set()
_of_ours: set[CodeType] = set()


def marks_person_code(function: F) -> F:
    """Decorator: code that `function` calls is the person's, and may be interrupted anywhere."""
    _of_person.add(cast(FunctionType, function).__code__)
    return function


def marks_own_code(function: F) -> F:
    """Decorator: code that `function` calls is ours, although live code may have called it."""
    _of_ours.add(cast(FunctionType, function).__code__)
    return function


def is_own_code(code: CodeType) -> bool:
    """Return whether a code object was marked by `marks_own_code`."""
    return code in _of_ours


def holds_person_code(frame: FrameType | None) -> bool:
    """Return whether a frame runs the person's code."""
    while frame is not None and frame.f_code not in _of_ours:
        if frame.f_code in _of_person:
            return True
        frame = frame.f_back
    return False
