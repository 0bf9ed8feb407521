"""Scripts are cut as a shell cuts them, or not at all; and loosely, to be searched."""

import shlex
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.approval.commands.place import Effort, TooLongToJudge
from agent_magics.approval.commands.script import SHELLS, LooseLexer, commands_of, split_script


def test_a_script_is_split_into_its_commands():
    assert split_script("ls -l 'a b'|wc;  pwd&&echo \"\"") == [
        ["ls", "-l", "a b"],
        ["wc"],
        ["pwd"],
        ["echo", ""],
    ]
    assert split_script("a'b'\"c\"d") == [["abcd"]]
    assert split_script("") is None


@given(st.lists(st.lists(st.text("ab-=./ '%", min_size=1), min_size=1, max_size=4), min_size=1))
def test_what_is_split_is_what_was_joined(commands):
    script = " && ".join(" ".join(shlex.quote(word) for word in words) for words in commands)
    split = split_script(script)
    assert split is None or split == commands


@settings(max_examples=50, deadline=None)
@given(st.text("ab '\"=-./,:+@% \t", min_size=1, max_size=12))
def test_a_shell_reads_the_same_words(line):
    split = split_script(f"p {line}")
    if split is not None:
        script = f"p() {{ printf '%s\\0' \"$@\"; }}; p {line}"
        seen = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
        # printf prints one empty string for no arguments at all
        assert seen.decode().split("\0")[:-1] == (split[0][1:] or [""])


# -- against bash itself ---------------------------------------------------------------------------

# Every command is replaced by a function that prints its words; NUL ends a word, SOH a command.
SHOW = "show() { printf '%s\\0' \"$@\"; printf '\\1'; }; "
WORDS = st.text("abAZ09_./,:+@%-", min_size=1, max_size=6)
QUOTED = st.one_of(
    st.text("ab '$`\\!*?#;&|<>(){}[]~=", max_size=6).map(lambda t: f'"{_plain(t)}"'),
    st.text('ab "$`\\!*?#;&|<>(){}[]~=', max_size=6).map(lambda t: f"'{t}'"),
)
PIECES = st.lists(st.one_of(WORDS, QUOTED), min_size=1, max_size=3).map("".join)
COMMANDS = st.lists(PIECES, max_size=4).map(lambda words: " ".join(["show", *words]))
OPERATORS = st.sampled_from([" && ", ";", "; ", " ; ", "&&", "\t&& "])


def _plain(text):
    return "".join(c for c in text if c not in '$`\\!"')


@st.composite
def scripts(draw):
    """Scripts of plain words and operators; `show` always succeeds, so that all of them run."""
    first, *rest = draw(st.lists(COMMANDS, min_size=1, max_size=4))
    return first + "".join(draw(OPERATORS) + command for command in rest)


def run_by_bash(script):
    """Return the words of each command that bash runs, in order."""
    done = subprocess.run(["bash", "-c", SHOW + script], capture_output=True, timeout=20)
    commands = done.stdout.decode().split("\1")[:-1]
    # printf prints one empty string for no arguments at all
    return [command.split("\0")[:-1] for command in commands], done.returncode


@settings(max_examples=120, deadline=None)
@given(scripts())
def test_bash_runs_the_commands_that_were_split(script):
    split = split_script(script)
    assert split is not None, "plain words and operators are understood"
    commands, status = run_by_bash(script)
    assert status == 0
    assert commands == [words[1:] or [""] for words in split]
    assert all(words[0] == "show" for words in split)


@settings(max_examples=150, deadline=None)
@given(st.text("show ab'\"\\$`*?[]{}()<>|&;#!~=\n\t", min_size=1, max_size=14))
def test_of_any_script_bash_runs_what_was_split_or_it_was_not_split(tail):
    script = f"show {tail}"
    split = split_script(script)
    if split is not None and all(words[0] == "show" for words in split) and "|" not in tail:
        commands, _ = run_by_bash(script)
        assert commands == [words[1:] or [""] for words in split]


@pytest.mark.parametrize(
    "script",
    [
        *("a > b", "a < b", "a 2>&1", "a &", "a $b", "a ${b}", "a $(b)", "a `b`", "a $((1))"),
        *("a *", "a ?", "a [b]", "a {b,c}", "a ~", "a # b", "a\nb", "(a)", "{ a; }", "! a", "a !b"),
        *("A=b c", "A=b", "a \\b", "a\\", "a 'b", 'a "b', 'a "$b"', 'a "`b`"', "a $'b'", 'a $"b"'),
        *(
            "a |& b",
            "a <<b",
            "a <<<b",
            "a <(b)",
            "a;;b",
            "&& a",
            "a ||",
            "a;",
            "|a",
            "a\rb",
            "a\0b",
        ),
        *("a\u00a0b", "a \u2028b", "a\vb", "a\fb", "f() { a; }", "[[ a ]]", "((a))", "=a", "a =b"),
        "a 'b\nc'",
    ],
)
def test_what_is_not_plain_is_not_split(script):
    assert split_script(script) is None


def test_what_is_not_plain_could_mean_something_else():
    assert run_by_bash("show *.none{1,2}")[0] != [["*.none{1,2}"]]
    assert run_by_bash("show $'\\x72m'")[0] == [["rm"]]


@given(st.text(max_size=200))
def test_any_text_is_split_or_not_and_never_an_error(text):
    assert split_script(text) is None or all(split_script(text))
    for argv in (["bash", "-c", text], ["bash", "-lc", text], [text], [text, text], ["sh", text]):
        found = commands_of(argv)
        assert found is None or all(found)


@pytest.mark.soak
@pytest.mark.parametrize("piece", ["a ", "'a' ", "a;", "a&&", "a|b ", '"', "'", "\\", "$(", "a\n"])
def test_splitting_takes_time_as_the_length_does(piece):
    def seconds(size):
        text = piece * (size // len(piece))
        began = time.process_time()
        split_script(text)
        return time.process_time() - began

    assert min(map(seconds, [400_000] * 3)) < 40 * min(map(seconds, [40_000] * 3)) + 0.5


# -- which commands a line means -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "commands"),
    [
        (["git", "status"], [["git", "status"]]),
        (["bash", "-c", "a b && c"], [["a", "b"], ["c"]]),
        (["bash", "-lc", "a"], [["a"]]),
        (["/bin/sh", "-l", "-c", "a|b"], [["a"], ["b"]]),
        (["zsh", "--login", "-c", "a"], [["a"]]),
        (["bash", "-c", "bash -c 'a; b' && c"], [["a"], ["b"], ["c"]]),
        (["bash", "x.sh", "-c"], [["bash", "x.sh", "-c"]]),
        (["bash"], [["bash"]]),
        (["bash", "-c", "a $b"], None),
        (["bash", "-c", "bash -c 'a $b'"], None),
        (["bash", "-c"], None),
        (["bash", "-x", "-c", "a"], None),
        (["bash", "-ic", "a"], None),
        (["bash", "-c", "a", "b"], None),
        (["bash", "+x", "a"], None),
        (["fish", "-c", "a"], None),
        ([], None),
        (["bash", "-c", "a " * 60_000], None),
    ],
)
def test_a_command_line_means_these_commands(argv, commands):
    assert commands_of(argv) == commands


ELSEWHERE = ["./", "../", "tools/", "/srv/", "/tmp/", "/opt/conda/bin/", "/usr/local/bin/"]


@pytest.mark.parametrize("shell", sorted(SHELLS - {"fish"}))
@pytest.mark.parametrize("folder", ["", "/bin/", "/usr/bin/", *ELSEWHERE])
def test_only_a_shell_of_the_system_is_taken_at_its_name_at_every_depth(folder, shell):
    """Any file may be called bash: what it does with a script is not known."""
    argv, is_known = [f"{folder}{shell}", "-c", "git status"], folder not in ELSEWHERE
    for _ in range(4):
        assert commands_of(argv) == ([["git", "status"]] if is_known else None)
        argv = ["bash", "-c", shlex.join(argv)]


def test_a_shell_elsewhere_is_a_program_like_others():
    assert commands_of(["./bash", "x.sh"]) == [["./bash", "x.sh"]]


# -- searching -------------------------------------------------------------------------------------


def searched(script):
    lexer = LooseLexer(script, Effort())
    lexer.run()
    return lexer


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("a 'b c'\"d\"e\\ f", [("", ["a", "b cde f"])]),
        (
            "a&&b||c|d;e&f\ng",
            list(zip(("", "&&", "||", "|", ";", "&", "\n"), "abcdefg", strict=True)),
        ),
        ("2>x a >y b <z", [("", ["a", "b", "z"])]),
        ("a &>x b", [("", ["a", "b"]), ("", ["b"])]),  # to bash, to sh
        ("a &>x", [("", ["a"])]),
        ("a # b\nc#d", [("", ["a"]), ("\n", ["c#d"])]),
        ("a $'b' \"", [("", ["a", "b", ""])]),
        ("(a $(b) `c`)", [("", ["a", "$"]), ("(", ["b"]), (")", ["c"])]),
    ],
)
def test_any_script_is_cut_into_commands(script, commands):
    found = searched(script).commands
    assert found == [(joiner, list(words)) for joiner, words in commands]


# Every form of a redirection, with the descriptor that may stand in front of it.
REDIRECTIONS = [
    *("<x", "0<x", "< x", "<&0", "<&-", "<>x", "<<<x", "<<< 'a b'", "<<E", "<<-E", "{fd}<x"),
    *(">x", ">>x", ">|x", ">&2", "2>&1", "2> x", "2>&-", "&>x", "&>>x", "{fd}>x", "2>&1<x"),
]


@pytest.mark.parametrize("form", REDIRECTIONS)
def test_a_redirection_stands_anywhere_in_a_command_and_is_no_word_of_it(form, tmp_path):
    (tmp_path / "x").touch()
    words = ["set", "--", "a", "b"]
    for at in range(len(words) + 1):
        line = " ".join([*words[:at], form, *words[at:]])
        script = f'{line}\nE\nprintf %s "$*"'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True)
        assert done.stdout == b"a b", "it is one to bash"
        found = searched(script).commands[0][1]
        assert found[:4] == words and len(found) < 6, "what is read may follow"


def test_substitutions_in_double_quotes_are_scripts_of_their_own():
    assert searched('a "b $(c d)"').nested == ["c d)"]
    assert searched("a 'b $(c d)'").nested == []


@given(st.text("ab '\"\\$`(){}<>|&;#\n"))
def test_every_script_is_searched_in_steps_no_more_than_its_length(script):
    effort = Effort(len(script))
    LooseLexer(script, effort).run()
    assert effort.left >= 0


def test_a_script_beyond_the_effort_is_given_up():
    with pytest.raises(TooLongToJudge):
        LooseLexer(";" * 11, Effort(10)).run()
