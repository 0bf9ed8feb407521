"""What is typed at a question, and what it means."""

import pytest

from agent_magics.kernel.questions.ways import choices_of, question_text, read_typed, type_in
from agent_magics.protocol.events import ApprovalRequested


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", ("approve", "")),
        ("Yes", ("approve", "")),
        ("a", ("approve_for_session", "")),
        ("session", ("approve_for_session", "")),
        ("kind", ("approve_kind_for_cell", "")),
        ("w", ("approve_kind_for_session", "")),
        ("cell", ("approve_for_cell", "")),
        ("Project", ("approve_for_project", "")),
        ("edit", ("edit", "")),
        ("stop", ("abort", "")),
        ("n", ("deny", "")),
        ("no use less memory", ("deny", "use less memory")),
        ("s", ("abort", "")),
        ("use less memory", ("deny", "use less memory")),
    ],
)
def test_a_choice_or_words_to_the_model(typed, answer):
    assert read_typed(typed) == answer


@pytest.mark.parametrize(
    "typed",
    [
        *("a better way, please", "yes but only the first", "y n", "project please"),
        *("session x", "edit this", "c d"),
    ],
)
def test_an_approval_with_words_is_none(typed):
    assert read_typed(typed) == ("deny", typed)


SCOPES = {"approve_for_cell": "this call", "approve_for_project": "git add \u202e…"}


def question(**more):
    fields = {"tool": "shell", "target": "git add x", "arguments": "{}", "reason": "why"}
    return ApprovalRequested(question_id="q1", call_id="c1", **(fields | more))


def test_a_question_says_what_each_lasting_answer_covers():
    text = question_text(question(scopes=tuple(SCOPES), covers=SCOPES))
    assert "  Always in this cell: this call\n" in text
    assert text.endswith("  Always for this project: git add ⟨U+202E⟩…")


def test_of_a_huge_question_the_end_is_shown_and_what_is_left_out_is_said():
    text = question_text(question(arguments="a" * 10_000_000 + "; rm -rf /"))
    assert len(text) < 50_000
    assert "characters are left out here" in text
    assert text.endswith("; rm -rf /")


def test_only_what_is_offered_has_a_button():
    decisions = [choice["decision"] for choice in choices_of(question())]
    assert decisions == ["approve", "deny", "abort"]
    asked = question(scopes=tuple(SCOPES), covers=SCOPES)
    assert [(choice["label"], choice["covers"]) for choice in choices_of(asked)] == [
        ("Approve", ""),
        ("Always in this cell", "this call"),
        ("Always for this project", SCOPES["approve_for_project"]),
        ("Deny", ""),
        ("Stop", ""),
    ]


@pytest.fixture
def typing(monkeypatch):
    """Types these lines; returns the prompts that were shown."""

    def type_lines(*lines):
        waiting, prompts = list(lines), []

        def read(prompt):
            prompts.append(prompt)
            if not waiting:
                raise EOFError
            return waiting.pop(0)

        monkeypatch.setattr("builtins.input", read)
        return prompts

    return type_lines


def test_what_is_not_offered_is_no_answer(typing, capsys):
    prompts = typing("project", "", "cell")
    answer = type_in(question(scopes=("approve_for_cell",)))
    assert answer.decision == "approve_for_cell"
    assert "'project' is not offered here" in capsys.readouterr().err
    assert len(prompts) == 3
    assert prompts[0] == "Run it? [y]es, [c]ell, [n]o and why, [s]top: "


def test_a_command_can_be_typed_in_anew(typing):
    prompts = typing("edit", "", "edit", "git add y")
    answer = type_in(question(editable="git add x"))
    assert (answer.decision, answer.edited_text) == ("approve", "git add y")
    assert "[e]dit" in prompts[0]


@pytest.mark.parametrize("text", ["", "a\nb", "a\u202eb", "a" * 2_001])
def test_what_cannot_be_seen_whole_is_not_typed_in_anew(typing, text):
    prompts = typing("edit", "n")
    assert type_in(question(editable=text)).decision == "deny"
    assert len(prompts) == 2
    assert "[e]dit" not in prompts[0]


def test_where_nobody_types_it_is_denied(typing):
    typing()
    assert (type_in(question()).decision, type_in(question()).by) == ("deny", "policy")


LABELS = {"approve": "Go on", "deny": "Sample only", "abort": "Stop"}


@pytest.mark.parametrize(
    ("typed", "decision"),
    [("go on", "approve"), ("Sample only", "deny"), ("stop", "abort")],
)
def test_a_question_about_no_call_has_answers_of_its_own(typing, capsys, typed, decision):
    prompts = typing("yes please", typed)
    asked = question(labels=LABELS, target="500 rows will cost 3 USD")
    assert type_in(asked).decision == decision
    assert prompts == ["Go on, Sample only, Stop: "] * 2
    shown = capsys.readouterr().err
    assert "'yes please' is not offered here" in shown and "wants to run" not in shown
    assert [choice["label"] for choice in choices_of(asked)] == list(LABELS.values())
