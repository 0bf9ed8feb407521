"""The widget of an approval question: what a call would do, with the buttons of its answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from agent_magics.render.visible import pretty_shortened, show_invisible, show_shortened
from agent_magics.render.widgets.page import AskingWidget, script

# What of one question goes to the page: it must stay usable, whatever a model sends.
_LONGEST_TARGET, _LONGEST_ARGUMENTS = 2_000, 100_000
_LONGEST_EDITED = 20_000
# Arguments that may scroll show their end a second time, where it is seen at once.
_ALWAYS_SEEN, _SEEN_LINES, _ENDING, _ENDING_LINES = 1_200, 12, 400, 4
_TARGET_LINES = 6


class QuestionWidget(AskingWidget):
    """Asks one question: may this call run?

    An answer has also ``feedback``, and ``edited``, the changed text.

    Args:
        question_id: the id that the answer will carry.
        tool: name of the tool that wants to run; "" where the question is about no call.
        target: what it would touch, on one line.
        arguments: all of its arguments, JSON text or code.
        reason: why this is asked.
        language: what the arguments are written in: bash, python, json or text.
        choices: the buttons, in order, as ``{"decision": …, "label": …, "covers": …}``.
        editable: the text that may be changed and approved.
        dangerous: Deny is what the page suggests, and Approve looks like what it is.
        by_page: see `HearingWidget`.
    """

    _esm = script("elements.js", "question.js")

    tool = traitlets.Unicode().tag(sync=True)
    target = traitlets.Unicode().tag(sync=True)
    arguments = traitlets.Unicode().tag(sync=True)
    ending = traitlets.Unicode().tag(sync=True)
    reason = traitlets.Unicode().tag(sync=True)
    language = traitlets.Unicode("text").tag(sync=True)
    choices = traitlets.List(traitlets.Dict()).tag(sync=True)
    editable = traitlets.Unicode().tag(sync=True)
    dangerous = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        *,
        question_id: str,
        tool: str,
        target: str,
        arguments: str,
        reason: str,
        choices: Sequence[dict[str, str]],
        language: str = "text",
        editable: str = "",
        dangerous: bool = False,
        by_page: bool = False,
    ) -> None:
        shown = pretty_shortened(arguments, _LONGEST_ARGUMENTS)
        super().__init__(
            question_id=question_id,
            tool=show_invisible(tool),
            target=_in_few_lines(show_shortened(target, _LONGEST_TARGET)),
            arguments=shown,
            ending=_ending_of(shown),
            reason=_in_few_lines(show_shortened(reason, _LONGEST_TARGET)),
            language=language,
            choices=[_shown_choice(choice) for choice in choices],
            editable=editable if _can_be_edited(editable) else "",
            dangerous=dangerous,
            by_page=by_page,
        )

    def resolve(self, decision: str) -> None:
        """Show the answer, given here or elsewhere, and accept no more clicks."""
        self.decision = decision

    def _take(self, content: Mapping[str, Any]) -> None:
        if self._is_answer(content):
            edited = content.get("edited")
            self._report(
                str(content.get("decision", "")),
                str(content.get("feedback") or ""),
                edited if isinstance(edited, str) else None,
            )

    def _is_answer(self, content: Mapping[str, object]) -> bool:
        """Return whether a message is a valid answer to this question; pages are not trusted."""
        decision = content.get("decision")
        if self.decision or not any(choice["decision"] == decision for choice in self.choices):
            return False
        # A lasting answer is about what was shown, not about what was typed.
        return content.get("edited") is None or (decision == "approve" and bool(self.editable))


def _ending_of(shown: str) -> str:
    """Return the last lines of a text that is too long to be seen without scrolling, else ""."""
    if len(shown) <= _ALWAYS_SEEN and shown.count("\n") < _SEEN_LINES:
        return ""
    return "\n".join(shown[-_ENDING:].split("\n")[-_ENDING_LINES:]).lstrip()


def _in_few_lines(text: str) -> str:
    """Shorten a text to its first and last three lines."""
    lines = text.split("\n")
    if len(lines) <= _TARGET_LINES:
        return text
    half = _TARGET_LINES // 2
    left_out = f"⟨… {len(lines) - 2 * half} lines are left out here …⟩"
    return "\n".join([*lines[:half], left_out, *lines[-half:]])


def _can_be_edited(text: str) -> bool:
    """Return whether a text is short and visible enough to be seen whole while it is edited."""
    return len(text) <= _LONGEST_EDITED and show_invisible(text) == text


def _shown_choice(choice: dict[str, str]) -> dict[str, str]:
    return {**choice, "covers": show_shortened(choice.get("covers", ""), _LONGEST_TARGET)}
