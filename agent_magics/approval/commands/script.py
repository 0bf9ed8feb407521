"""Splits shell scripts into commands: exactly where possible, else well enough for searching."""

import re
from collections import defaultdict
from collections.abc import Sequence

from agent_magics.approval.commands.place import Effort
from agent_magics.approval.commands.words import SYSTEM_FOLDERS, names, program_of

SHELLS = frozenset(["sh", "bash", "zsh", "dash", "ksh", "ash", "fish"])

# Words of a command line by which a shell may come that reads its input.
_BRING_SHELL = SHELLS | names(
    "SHELL eval source ssh su sudo doas run0 busybox docker podman kubectl"
)
_WORD = re.compile(r"[\w.+-]+")

_PLAIN = re.compile(r"[A-Za-z0-9_./,:+@%=-]+")
_OPERATOR = re.compile(r"&&|\|\||\|(?!&)|;")
_WITH_SCRIPT = frozenset({("-c",), ("-lc",), ("-l", "-c"), ("--login", "-c")})
_DEEPEST = 4  # nesting depth of scripts
_MOST_SPLIT = 100_000  # characters


def is_shell(program: str) -> bool:
    """Tell whether a program name is that of a shell."""
    return program_of(program) in SHELLS


def script_of(argv: Sequence[str]) -> str | None:
    """Return the script of ``bash -c SCRIPT`` and ``bash -lc SCRIPT``; None for anything else.

    A file elsewhere that has a shell's name may do anything with a script.
    """
    folder, slash, program = argv[0].rpartition("/") if argv else ("", "", "")
    if program not in SHELLS or (slash and folder not in SYSTEM_FOLDERS):
        return None
    if tuple(argv[1:-1]) not in _WITH_SCRIPT:
        return None
    return argv[-1]


def may_read_script(argv: Sequence[str]) -> bool:
    """Tell whether what a command line starts may read a script from its input.

    The first word, a shell that was given its script, does not.
    """
    return not _BRING_SHELL.isdisjoint(_WORD.findall(" ".join(argv[1:])))


def commands_of(argv: Sequence[str], depth: int = 0) -> list[list[str]] | None:
    """Return the commands that `argv` runs: itself, or those of a plain script given to a shell.

    Returns:
        None where a shell would interpret something that is not understood here.
    """
    if not argv:
        return None
    if not is_shell(argv[0]):
        return [list(argv)]
    script = script_of(argv)
    if script is None:
        # A script's file is an ordinary operand; options change the meaning of words.
        return None if argv[1:] and argv[1].startswith(("-", "+")) else [list(argv)]
    if depth >= _DEEPEST or len(script) > _MOST_SPLIT or is_other_language(argv[0]):
        return None
    plain = split_script(script)
    if plain is None:
        return None
    commands: list[list[str]] = []
    for words in plain:
        inner = commands_of(words, depth + 1)
        if inner is None:
            return None
        commands += inner
    return commands


def is_other_language(program: str) -> bool:
    """Tell whether a shell's language is not that of POSIX."""
    return program_of(program) == "fish"


def split_script(script: str) -> list[list[str]] | None:
    """Split a script that consists only of plain words joined by ``&& || ; |`` into commands.

    Returns:
        The words of each command; None when it contains anything else: a redirection, a variable, a
        substitution, a wildcard, an assignment, a comment, a background job, a second line.
    """
    commands: list[list[str]] = [[]]
    word: str | None
    position, word = 0, None  # None: between words; "" may be an empty quoted word
    while position < len(script):
        character = script[position]
        plain = _PLAIN.match(script, position)
        if character in "'\"":
            end = script.find(character, position + 1)
            quoted = script[position + 1 : end]
            if end < 0 or not _is_literal(quoted, character):
                return None
            word, position = (word or "") + quoted, end + 1
        elif plain and not (word is None and character == "="):
            word, position = (word or "") + plain[0], plain.end()
        elif character in " \t":
            _end_word(commands, word)
            word, position = None, position + 1
        else:
            operator = _OPERATOR.match(script, position)
            _end_word(commands, word)
            if not operator or not commands[-1]:
                return None
            commands.append([])
            word, position = None, operator.end()
    _end_word(commands, word)
    if not all(commands) or any("=" in words[0] for words in commands):
        return None
    return commands


def _is_literal(quoted: str, quote: str) -> bool:
    special = "$`\\!" if quote == '"' else ""
    return not any(c in special or not c.isprintable() for c in quoted if c != "\t")


def _end_word(commands: list[list[str]], word: str | None) -> None:
    if word is not None:
        commands[-1].append(word)


_UNQUOTED = re.compile(r"[^\s'\"\\#>;&|()`<]+")
_DESCRIPTOR = re.compile(r"\d+|\{\w+\}")  # before a redirection
_INSIDE = {
    "'": re.compile(r"[^']*"),
    '"': re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL),
}


class LooseLexer:
    """Splits any shell script well enough for searching it.

    Attributes:
        commands: its simple commands, each with the operator that joins it to the one before; what
            they read (`<x`, `<<<x`) follows their own words, wherever it stands.
        nested: the texts of substitutions inside double quotes.
        parentheses: those directly before a command, by its number.
    """

    def __init__(self, script: str, effort: Effort) -> None:
        self.commands: list[tuple[str, list[str]]] = []
        self.nested: list[str] = []
        self.parentheses: defaultdict[int, str] = defaultdict(str)
        self._script = script
        self._effort = effort
        self._at = 0
        self._word: list[str] | None = None
        self._words: list[str] = []
        self._inputs: list[str] = []
        self._next_to = self._words  # where the next word goes
        self._behind: list[int] = []  # where another command begins, to some shells
        self._joined_by = ""

    def run(self) -> None:
        """Fill `commands` and `nested`.

        Raises:
            TooLongToJudge: the script takes more steps than are left.
        """
        script = self._script
        while self._at < len(script):
            self._effort.spend(1)
            if plain := _UNQUOTED.match(script, self._at):
                self._at = plain.end()
                self._put(plain[0])
            else:
                self._at += 1
                self._special(script[self._at - 1])
        self._end_command("")

    def _special(self, character: str) -> None:
        """Continue after a special character, which was just read."""
        if character in "'\"":
            self._quoted(character)
        elif character == "\\":
            self._escaped()
        elif character.isspace() and character != "\n":
            self._end_word()
        elif character == "#" and self._word is None:
            end = self._script.find("\n", self._at)
            self._at = len(self._script) if end < 0 else end
        elif character in "<>":
            self._redirection(character)
        elif character == "#":
            self._put(character)
        elif character in "()":
            self._end_command(character)
            self.parentheses[len(self.commands)] += character
        else:
            self._separator(character)

    def _put(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    def _quoted(self, quote: str) -> None:
        inside = _INSIDE[quote].match(self._script, self._at)
        text = inside[0] if inside else ""
        self._at += len(text) + 1
        if quote == '"':
            self._collect_substitutions(text)
            text = text.replace("\\", "")
        if self._word and self._word[-1].endswith("$"):  # $'…' and $"…"
            self._word[-1] = self._word[-1][:-1]
        self._put(text)

    def _collect_substitutions(self, text: str) -> None:
        for opening in ("$(", "`"):
            if opening in text:
                self.nested.append(text.partition(opening)[2].replace("`", "\n"))

    def _escaped(self) -> None:
        following = self._script[self._at : self._at + 1]
        self._at += 1
        if following != "\n":
            self._put(following)

    def _redirection(self, sign: str) -> None:
        if self._word is not None and _DESCRIPTOR.fullmatch("".join(self._word)):
            self._word = None
        self._end_word()
        while self._script[self._at : self._at + 1] in ("<", ">", "|", "&"):
            self._at += 1
        self._next_to = self._inputs if sign == "<" else []

    def _separator(self, character: str) -> None:
        following = self._script[self._at : self._at + 1]
        if character == "&" and following == ">" and (self._word or self._words):
            self._end_word()
            self._behind.append(len(self._words))  # bash's &>; sh ends the command here
            return
        doubled = character in "&|" and following == character
        self._at += doubled
        self._end_command(character * 2 if doubled else character)

    def _end_word(self) -> None:
        if self._word is not None:
            self._next_to.append("".join(self._word))
            self._word, self._next_to = None, self._words

    def _end_command(self, joiner: str) -> None:
        self._end_word()
        if words := [*self._words, *self._inputs]:
            self.commands.append((self._joined_by, words))
            for at in self._behind:
                self.commands += [(self._joined_by, words[at:])] if words[at:] else []
            self._words, self._inputs, self._behind, self._joined_by = [], [], [], joiner
        self._next_to = self._words
