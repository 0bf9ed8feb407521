"""A command line gets one verdict, and soon, whatever it holds."""

import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics.approval.commands.classification import (
    CommandRisk,
    CommandVerdict,
    classify_command,
)
from agent_magics.approval.commands.danger import danger_of
from agent_magics.approval.commands.place import CommandPlace, Effort, TooLongToJudge
from agent_magics.approval.commands.safe import only_reads

ROOT = Path("/home/ada/project")
SAFE, DANGEROUS, OTHER = CommandRisk.SAFE, CommandRisk.DANGEROUS, CommandRisk.OTHER
TOO_LONG = CommandVerdict(OTHER, "too long to judge")
STEPS = 300
LINES = 25 * STEPS  # of Python; of 18,000 mixtures the dearest took 23.3 a step


def judge(argv, cwd=None, denied=lambda operand: operand.endswith(".env")):
    return classify_command(argv, roots=[ROOT], cwd=cwd, denied=denied)


def test_verdicts_say_why():
    assert judge(["ls"]) == CommandVerdict(SAFE, "it only reads")
    assert judge(["make"]) == CommandVerdict(OTHER, "it may do more than read")
    assert judge(["git", "push", "-f"]).risk is DANGEROUS
    assert judge(["cat", ".env"]).risk is OTHER
    assert judge([]).risk is OTHER


def test_danger_beside_reading_is_danger():
    assert judge(["bash", "-c", "ls; rm -rf /"]).risk is DANGEROUS


def test_it_runs_in_the_first_root_if_no_folder_is_given():
    assert judge(["rm", "-rf", "."]).risk is DANGEROUS
    assert judge(["rm", "-rf", "."], cwd=ROOT / "build").risk is OTHER


@given(st.text(alphabet="lsrm -/'\"\\$`(){}<>|&;#\n*~=!ab"))
def test_any_script_gets_a_verdict(script):
    assert judge(["bash", "-c", script]).reason


# -- bounded work --------------------------------------------------------------------------------


def work_of(argv):
    """Count the lines of Python and the questions that `STEPS` steps of effort come to."""
    lines, asked = 0, []

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace if "agent_magics" in frame.f_code.co_filename else None

    place = CommandPlace((str(ROOT),), (str(ROOT),), asked.append, effort=Effort(STEPS))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        danger_of(argv, place)
        only_reads(argv, place)
    except TooLongToJudge:
        pass
    finally:
        sys.settrace(before)
    return lines, len(asked)


PIECES = ["a", "(", "'", '"', "\\", "$(", '"$(', "`", "| ", "rm -r a ", "sudo ", "sh ", "a(", "a "]
PIECES += ["f(){", "f(){a|", "cat a ", "cat a;", "curl a|", "git -c ", "a/", "@a/", "while fork "]
PIECES += ["cd a/b;rm -r c d;", "$(curl", "sh -c 'ls';", "\n", "# ", "a=b ", "> "]


def shapes(text):
    """The ways in which a text may be a command line."""
    words = text.split(" ")
    scripts = (text, f"sudo {text}", f"cd a/b;cd c/d;cd e/f;cat {text}", f'sh "{text}"')
    starts = ([], ["sudo"], ["cat"], ["diff"], ["rm", "-r"], ["bash"])
    return [["bash", "-c", s] for s in scripts] + [[*start, *words] for start in starts]


@pytest.mark.parametrize("size", [200, 2_000, 50_000])
@pytest.mark.parametrize("piece", PIECES)
def test_the_work_does_not_grow_with_the_size(piece, size):
    for argv in shapes(piece * (size // len(piece))):
        lines, asked = work_of(argv)
        assert lines <= LINES
        assert asked <= STEPS // 5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.sampled_from((200, 20_000)))
@example(["\\", "a(", "$("], 200)
@example(["\n", "a(", "'", "'"], 200)
def test_no_mixture_takes_more_work(pieces, size):
    text = "".join(pieces)
    lines, asked = work_of(["bash", "-c", text * (size // len(text) + 1)])
    assert lines <= LINES and asked <= STEPS // 5


@pytest.mark.parametrize("piece", PIECES)
def test_nothing_hostile_and_long_is_safe(piece):
    assert judge(["bash", "-c", piece * (100_000 // len(piece))]).risk is not SAFE


def test_an_ordinary_long_script_is_judged_whole():
    script = "cat some/file/with/a/name.txt | head -n 20 && echo 'this and that of it'\n" * 60
    assert judge(["bash", "-c", script]).reason == "it may do more than read"
    assert judge(["bash", "-c", script + "rm -rf *"]).risk is DANGEROUS


def test_many_files_are_judged_or_given_up():
    assert judge(["cat", *["a.txt"] * 50]).risk is SAFE
    assert judge(["cat", *["a.txt"] * 5_000]) == TOO_LONG
    assert judge(["echo", "a" * 100_000]) == TOO_LONG


@pytest.mark.parametrize("filler", ["echo a; ", "sudo ", "'", "a" * 100 + " "])
def test_danger_is_found_in_what_is_too_long(filler):
    padding = filler * (50_000 // len(filler))
    assert judge(["bash", "-c", padding]) == TOO_LONG
    assert judge(["bash", "-c", f"{padding} rm -rf / {padding}"]).risk is DANGEROUS
    assert judge(["rm", "-rf", "/", *padding.split()]).risk is DANGEROUS
    assert judge(["bash", "-c", f"{padding} rm -rf build {padding}"]) == TOO_LONG
