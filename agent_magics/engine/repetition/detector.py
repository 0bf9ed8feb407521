"""Detects repeated calls and results across the requests and turns of a conversation.

A call repeats an earlier one when it is equal and had an equal output: a call that changes
something, or returns something new, is no repetition. Two measures, both by equality, so that a
call costs the same in a long conversation as in a short one:

* **identical**: the tool and its arguments are equal as JSON (the order of keys and white space do
  not count), and so are the outputs, but for times, durations, addresses and the like.
* **near-identical**: the same after every number became 0, letters became small, white space and
  quotes were removed, and arguments were left out that say how, not what (`_HOW`). Small models
  vary these: a longer time-out, a line further, other quotes. Paging through a file varies them,
  too, but returns another page, and so is no repetition.

For each distance of one to four calls there is a count of how many calls in a row equalled the one
so far before. So A A A is a series of distance 1, and A B A B A B one of distance 2.

Calls made by the model's code are many by nature (a call for each file). Of these only a long
series of identical ones is reported, once a turn, and nobody is asked: an interrupt ends code.
"""

import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from agent_magics.engine.context.history import History
from agent_magics.models.recordings.drift import normalise_text
from agent_magics.protocol.config import LoopLimits
from agent_magics.protocol.items import (
    CallItem,
    Content,
    CustomToolCall,
    FunctionCall,
    ToolCallOutput,
    text_of,
)

LONGEST_PERIOD = 4

# Tools that poll: repeating them is no sign of a loop.
POLLING = frozenset(("write_stdin", "list_sessions", "wait", "list_agents"))

# Arguments that say how a call is made, not what it does.
_HOW = frozenset(
    ("timeout_ms", "yield_time_ms", "max_output_tokens", "justification", "explanation")
)

# Longer arguments (such as a whole file) are compared as they are.
_MOST_PARSED = 20_000
# Characters from each end of an output that are compared where times and the like may differ, and
# by how many its whole length may differ then.
_COMPARED = 1_000
_MOST_LONGER = 200
# Shorter texts ("Let me see.") are not counted.
_SHORTEST_TEXT = 20

_SAME_WORDS = "the same words beside its calls"

_NESTED = (
    "Your code called {name} {times} times in a row or more with the same arguments, and the "
    "result was the same each time. Keep a result in a variable, and end a loop that waits for "
    "something after some tries."
)

_NUMBERS = re.compile(r"\d+")
_LOOSE = re.compile(r"[\s\"'`\\]+")


@dataclass(slots=True)
class _ComparedCall:
    """One call in the form in which it is compared; parts are computed on demand."""

    name: str
    exact: str
    near: str
    output: str = ""
    _normal: str | None = field(default=None, repr=False)

    def brought_the_same(self, other: "_ComparedCall") -> bool:
        if self.output == other.output:
            return True
        is_near = abs(len(self.output) - len(other.output)) <= _MOST_LONGER
        return is_near and self.first_line == other.first_line and self.normal == other.normal

    @property
    def first_line(self) -> str:
        """The first line of `normal`, which tells most outputs apart at a twentieth of the cost."""
        return normalise_text(self.output[:_COMPARED].lstrip().partition("\n")[0])

    @property
    def normal(self) -> str:
        """The output without parts that vary between runs; of a long one, both ends."""
        if self._normal is None:
            text = self.output
            ends = text[:_COMPARED] + text[max(len(text) - _COMPARED, _COMPARED) :]
            self._normal = normalise_text(ends)
        return self._normal


@dataclass(frozen=True, slots=True)
class Circle:
    """A series of repeated calls: its description, and its length."""

    words: str
    times: int


class RepetitionDetector:
    """Counts the repetitions of one conversation.

    Attributes:
        limits: the lengths at which a series is reported; may change from turn to turn.
        denied: whether a repetition was denied, so that the turn ends after a summary.
    """

    def __init__(self, limits: LoopLimits | None = None) -> None:
        self.limits = limits or LoopLimits()
        self.denied = False
        self.forget()
        self.begin_turn()

    def begin_turn(self) -> None:
        """Begin a turn: that a cell is run again is no repetition of the model."""
        self._in_turn = 0
        self._notes_given = 0
        self._note_at: dict[str, int] = {}
        self._notes: list[str] = []
        self._nested: tuple[str, Content] = "", ""
        self._nested_row = 0
        self._nested_reported = False
        self.denied = False

    def forget(self) -> None:
        """Reset all counts."""
        self._calls: deque[_ComparedCall] = deque(maxlen=LONGEST_PERIOD)
        self._exact = [0] * (LONGEST_PERIOD + 1)  # by distance: calls in a row that repeat
        self._near = 0  # these two at distance 1 only
        self._changing = 0
        self._text = ""
        self._texts = 0
        self._note_at = {}
        self._notes_given = 0
        self._arrived: dict[str, _ComparedCall] = {}

    # -- what happens -----------------------------------------------------------------------------

    def arrived(self, items: Iterable[CallItem]) -> None:
        """Record the calls of a response, before they run."""
        self._arrived = {item.call_id: _read(item) for item in items if item.call_id}

    def question_about(self, call_id: str) -> str:
        """Return why the person must be asked before this call runs, or "".

        That is so for a call that continues a series which the model was told to end.
        """
        if not self._notes_given:
            return ""
        call, circle = self._arrived.get(call_id), self._circle()
        if call is None or circle is None or not self._goes_on(call, circle):
            return ""
        noted = self._note_at.get(circle.words)
        times = circle.times + (circle.words != _SAME_WORDS)  # texts count before calls
        patient = noted is not None and times < noted + self.limits.patience
        if patient or (noted is None and self._notes_given < self.limits.notes):
            return ""
        return f"the agent goes round in circles: {circle.words}, {circle.times} times so far"

    def answered(self, call_id: str, output: Content) -> None:
        """Record a call's output, in the order of the calls."""
        call = self._arrived.pop(call_id, None)
        if call is None:
            return
        call.output = text_of(output)
        self._in_turn += 1
        self._count(call)
        self._calls.append(call)
        self._notice()

    def answered_to_code(self, name: str, arguments: str, output: Content) -> None:
        """Record a call that the model's code has made."""
        made = f"{name} {arguments}", output
        self._nested_row = self._nested_row + 1 if made == self._nested else 1
        self._nested = made
        is_long = self._nested_row >= self.limits.nested and name not in POLLING
        if is_long and not self._nested_reported:
            self._nested_reported = True
            self._notes.append(_NESTED.format(name=name, times=self._nested_row))

    def record_text(self, text: str) -> None:
        """Record the model's text beside its calls."""
        text = " ".join(text.split()).casefold()
        if len(text) < _SHORTEST_TEXT:
            return
        self._texts = self._texts + 1 if text == self._text else 1
        self._text = text
        self._notice()

    def take_notes(self) -> list[str]:
        """Return and remove the notes for the model."""
        notes, self._notes = self._notes, []
        return notes

    # -- counting ---------------------------------------------------------------------------------

    def _count(self, call: _ComparedCall) -> None:
        for distance in range(1, LONGEST_PERIOD + 1):
            before = self._before(distance)
            same = before is not None and before.exact == call.exact
            repeats = same and before is not None and before.brought_the_same(call)
            self._exact[distance] = self._exact[distance] + 1 if repeats else 0
        last = self._before(1)
        is_same = last is not None and last.exact == call.exact
        self._changing = self._changing + 1 if is_same else 0
        is_near = last is not None and last.near == call.near and last.brought_the_same(call)
        self._near = self._near + 1 if is_near else 0

    def _before(self, distance: int) -> _ComparedCall | None:
        return self._calls[-distance] if len(self._calls) >= distance else None

    def _goes_on(self, call: _ComparedCall, circle: Circle) -> bool:
        """Return whether `call` continues the noticed series."""
        last = self._before(1)
        if circle.words == _SAME_WORDS or (last is not None and last.near == call.near):
            return True
        earlier = map(self._before, range(2, LONGEST_PERIOD + 1))
        return any(before is not None and before.exact == call.exact for before in earlier)

    def _circle(self) -> Circle | None:
        """Return the series that has become too long, if there is one."""
        limits = self.limits
        last = self._before(1)
        found = None
        if last is not None and last.name in POLLING:
            found = self._row(self._changing, limits.changing, last, "the same call")
        elif last is not None:
            found = (
                self._row(self._exact[1], limits.identical, last, "the same call, the same result")
                or self._period()
                or self._near_row(last)
                or self._row(self._changing, limits.changing, last, "the same call")
            )
        if found is None and self._texts >= limits.texts and self._in_turn >= limits.texts:
            found = Circle(_SAME_WORDS, self._texts)
        return found

    def _row(self, repeats: int, most: int, call: _ComparedCall, description: str) -> Circle | None:
        # Two of them must be of this turn: one call for each of three prompts is no repetition.
        if repeats + 1 < most or self._in_turn < 2:
            return None
        return Circle(f"{description} ({call.name})", repeats + 1)

    def _near_row(self, last: _ComparedCall) -> Circle | None:
        if self._near <= self._exact[1]:  # there is no difference in it: a row of the other kind
            return None
        return self._row(self._near, self.limits.near_identical, last, "nearly the same call")

    def _period(self) -> Circle | None:
        if self._exact[1]:  # these are all the same: a row of distance 1
            return None
        for distance in range(2, LONGEST_PERIOD + 1):
            times = self._exact[distance] // distance + 1
            if times >= self.limits.periods and self._in_turn >= 2 * distance:
                return Circle(f"the same {distance} calls in turn", times)
        return None

    def _notice(self) -> None:
        """Add a note for the model about a series that has just become too long, once for each."""
        circle = self._circle()
        if circle is None:
            self._note_at.clear()
            return
        if circle.words in self._note_at or self._notes_given >= self.limits.notes:
            return
        self._note_at[circle.words] = circle.times
        self._notes_given += 1
        self._notes.append(_note(circle))


def _note(circle: Circle) -> str:
    return (
        f"You repeat yourself: {circle.words}, {circle.times} times so far. Once more will not "
        "bring anything new. Look at what you have, go another way, or say what keeps you from it."
    )


def _read(item: CallItem) -> _ComparedCall:
    if isinstance(item, FunctionCall):
        exact, near = _forms(item.arguments)
        return _ComparedCall(item.name, f"{item.name} {exact}", f"{item.name} {near}")
    if isinstance(item, CustomToolCall):
        text = item.input.strip()
        return _ComparedCall(item.name, f"{item.name} {text}", f"{item.name} {_loosen(text)}")
    text = json.dumps([item.command, item.workdir])
    return _ComparedCall("local_shell", f"local_shell {text}", f"local_shell {_loosen(text)}")


def _forms(arguments: str) -> tuple[str, str]:
    """Return the arguments in a canonical form, and in a form without numbers, case and spaces."""
    if len(arguments) > _MOST_PARSED:
        return arguments, arguments
    try:
        fields = json.loads(arguments)
        exact = json.dumps(fields, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or nested a thousand times
        return arguments.strip(), _loosen(arguments)
    if not isinstance(fields, dict) or _HOW.isdisjoint(fields):
        return exact, _loosen(exact)
    what = {name: value for name, value in fields.items() if name not in _HOW}
    return exact, _loosen(json.dumps(what, sort_keys=True, ensure_ascii=False))


def _loosen(text: str) -> str:
    return _NUMBERS.sub("0", _LOOSE.sub("", text)).casefold()


READING = frozenset(("read_file", "get_memory", "read_skill"))
"""Tools that return what something holds now."""

SAME = "Not changed since you last read it: the text of your earlier {name} call still holds."

# Characters; a shorter text is as good as the line.
_SHORTEST = 200
# Items; what was said before these is easily overlooked, so it is said again.
_NEAR = 100


def say_once(call: CallItem, content: Content, history: History) -> Content:
    """Return `content`, or one line where the same call had the same output when it was made last,
    which is still sent.

    Args:
        call: the call that returned it.
        content: its output.
        history: the conversation.
    """
    if not (isinstance(call, FunctionCall) and call.name in READING and isinstance(content, str)):
        return content
    if len(content) < _SHORTEST:
        return content
    near = list(islice(reversed(history.sent), _NEAR))
    exact = _forms(call.arguments)[0]
    same = {
        each.call_id
        for each in near
        if isinstance(each, FunctionCall)
        and each.name == call.name
        and _forms(each.arguments)[0] == exact
    }
    line = SAME.format(name=call.name)
    before = (
        each.output
        for each in near
        if isinstance(each, ToolCallOutput) and each.call_id in same and each.output != line
    )
    return line if next(before, None) == content else content
