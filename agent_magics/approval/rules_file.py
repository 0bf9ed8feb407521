"""Parses a file of rules, reporting errors by line, and edits it without touching other lines.

Law: a malformed file is an error that names file and line; none of its rules is used. The person's
order, comments and spaces are kept.
"""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agent_magics.approval.glob import is_glob, matches_glob
from agent_magics.config_files.toml_edit import toml_text, without_lines
from agent_magics.config_files.toml_places import (
    Statement,
    TomlPlaces,
    decode,
    parse_toml,
    read_settings,
)
from agent_magics.files.plain_files import file_stamp
from agent_magics.protocol.errors import FatalError, short_message

PERMISSIONS = ("command", "read", "write", "network", "mcp", "tool")
DECISIONS = ("allow", "prompt", "forbid")  # in increasing strictness
SANDBOXES = ("default", "bypass")

# Words of a command, each with its alternatives.
Words: TypeAlias = tuple[tuple[str, ...], ...]

_KEYS = frozenset(
    {
        *("permission", "pattern", "decision", "sandbox", "agent", "justification"),
        *("match", "not_match", "exact"),
    }
)
_MOST_WORDS = 50

HEADER = """\
# Rules of agent-magics for this project: which calls run without a question ("allow"), which are
# asked about every time ("prompt"), and which never run ("forbid"). The strictest match wins.
# Answers given "for this project" are added at the end. After a change by hand the "allow" rules
# hold again once you say %agent approvals trust; %agent approvals lists and revokes them.
"""
MARK = "# Approved on "  # begins the comment above a rule written by an answer


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``[[rule]]`` table.

    Attributes:
        permission: one of `PERMISSIONS`.
        pattern: words with their alternatives (a prefix of the command), or a glob.
        decision: one of `DECISIONS`.
        sandbox: "default", "bypass", or "" where not set.
        agent: a glob of agents' names.
        justification: a reason to show with the decision.
        origin: "user" or "project".
        file: its path.
        number: its index in the file, from 0.
        line: its first line, from 1.
        by_answer: whether an answer to a question wrote it.
        exact: whether the words are the whole command, and not its beginning.
    """

    permission: str
    pattern: Words | str
    decision: str
    sandbox: str = ""
    agent: str = "*"
    justification: str = ""
    origin: str = "user"
    file: str = ""
    number: int = 0
    line: int = 0
    by_answer: bool = False
    exact: bool = False

    def words_matched(self, argv: Sequence[str]) -> int:
        """Return the number of words that the pattern matches, 0 where it is no prefix of
        `argv`.
        """
        if isinstance(self.pattern, str) or len(argv) < len(self.pattern):
            return 0
        if self.exact and len(argv) > len(self.pattern):
            return 0
        fits = all(word in words for word, words in zip(argv, self.pattern, strict=False))
        return len(self.pattern) if fits else 0

    @property
    def text(self) -> str:
        """The pattern for the person: ``git (status|log) …``."""
        if isinstance(self.pattern, str):
            return self.pattern
        return " ".join(map(_shown_word, self.pattern)) + ("" if self.exact else " …")

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.file}, line {self.line}"


def _shown_word(words: tuple[str, ...]) -> str:
    quoted = [shlex.quote(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"({'|'.join(quoted)})"


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A file of rules as it was read.

    Attributes:
        digest: SHA-256 of its bytes, in hex; "" where there is no file.
        identity: its file system metadata, which changes when it is written.
    """

    path: Path
    origin: str
    text: str = ""
    digest: str = ""
    rules: tuple[Rule, ...] = ()
    identity: tuple[int, ...] = ()


def read_rules(path: Path, origin: str) -> RulesFile:
    """Read a file of rules; a missing file has none.

    Raises:
        FatalError: it cannot be read, or is malformed; the message names file and line.
    """
    identity = file_stamp(path)
    data = read_settings(path, "rules", links=origin == "user")
    if data is None:
        return RulesFile(path, origin)
    text = decode(data, path)
    rules = parse_rules(text, path, origin)
    return RulesFile(path, origin, text, hashlib.sha256(data).hexdigest(), rules, identity)


def parse_rules(text: str, path: Path, origin: str) -> tuple[Rule, ...]:
    """Parse the rules in `text`, in order.

    Raises:
        FatalError: it is malformed; the message names file and line.
    """
    data = parse_toml(text, path)
    places = RulePlaces(text)
    for key in data:
        if key != "rule":
            line = places.line_of_top(key)
            raise FatalError(
                f"{path}, line {line}: {key!r} is not known here; a file of rules holds [[rule]] "
                "tables only."
            )
    tables = data.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        line = places.line_of_top("rule")
        raise FatalError(f"{path}, line {line}: rules are written as [[rule]] tables.")
    reader = _RuleReader(path, origin, places)
    return tuple(reader.read(number, table) for number, table in enumerate(tables))


class _RuleReader:
    """Converts tables to rules, and reports errors with their lines."""

    def __init__(self, path: Path, origin: str, places: "RulePlaces") -> None:
        self._path, self._origin, self._places = path, origin, places

    def read(self, number: int, table: Mapping[str, Any]) -> Rule:
        """Convert one table to a rule.

        Raises:
            FatalError: it is malformed.
        """
        self._number = number
        for key in table:
            if key not in _KEYS:
                known = ", ".join(sorted(_KEYS))
                self._refuse(key, f"{key!r} is not a key of a rule; there are: {known}")
        permission = self._choice(table, "permission", PERMISSIONS)
        rule = Rule(
            permission=permission,
            pattern=self._pattern(table.get("pattern"), permission),
            decision=self._choice(table, "decision", DECISIONS),
            sandbox=self._choice(table, "sandbox", SANDBOXES) if "sandbox" in table else "",
            agent=self._text(table, "agent", "*") or "*",
            justification=self._text(table, "justification", ""),
            origin=self._origin,
            file=str(self._path),
            number=number,
            line=self._places.line_of(number),
            by_answer=self._places.is_marked(number),
            exact=self._flag(table, "exact"),
        )
        self._check_sandbox(rule)
        self._check_examples(rule, table)
        return rule

    def _refuse(self, key: str, what: str) -> None:
        line = self._places.line_of(self._number, key)
        raise FatalError(f"{self._path}, line {line}: {what}.")

    def _choice(self, table: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
        value = table.get(key)
        if key not in table:
            self._refuse(key, f"the rule has no {key}; it is one of: {' | '.join(choices)}")
        if value not in choices or not isinstance(value, str):
            self._refuse(key, f"{key} = {value!r} is not one of: {' | '.join(choices)}")
        return str(value)

    def _text(self, table: Mapping[str, Any], key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            self._refuse(key, f"{key} = {value!r} must be text")
        return str(value)

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self._refuse(key, f"{key} = {value!r} must be true or false")
        return bool(value)

    def _pattern(self, value: object, permission: str) -> Words | str:
        if value is None:
            self._refuse("pattern", "the rule has no pattern")
        if permission == "network" and value == "*":
            return "*"
        if permission in ("command", "network"):
            return self._words(value, permission)
        if not isinstance(value, str) or not value or not is_glob(value):
            self._refuse("pattern", f"pattern = {value!r} must be a pattern such as 'src/**'")
        return str(value)

    def _words(self, value: Any, permission: str) -> Words:
        also = ', or "*" for every command' if permission == "network" else ""
        form = f'a list of words such as ["git", ["status", "log"]]{also}'
        if not isinstance(value, list) or not value:
            self._refuse("pattern", f"pattern = {value!r} must be {form}")
        if len(value) > _MOST_WORDS:
            self._refuse("pattern", f"the pattern has more than {_MOST_WORDS} words")
        words = tuple(
            tuple(word) if isinstance(word, list) else (word,)  # alternatives
            for word in value
        )
        for word in words:
            if not word or not all(isinstance(each, str) and each for each in word):
                self._refuse("pattern", f"pattern = {value!r} must be {form}")
            if {"*", "**"} & set(word):
                self._refuse(
                    "pattern",
                    "words of a command stand for themselves and more may always follow; leave "
                    '"*" out',
                )
        return words

    def _check_sandbox(self, rule: Rule) -> None:
        if rule.sandbox and rule.permission != "command":
            self._refuse("sandbox", 'sandbox is for permission = "command" only')
        if rule.sandbox == "bypass" and rule.decision == "forbid":
            self._refuse("sandbox", "what is forbidden runs nowhere; leave sandbox out")

    def _check_examples(self, rule: Rule, table: Mapping[str, Any]) -> None:
        for key, expected in (("match", True), ("not_match", False)):
            examples = table.get(key, [])
            if not isinstance(examples, list):
                self._refuse(key, f"{key} = {examples!r} must be a list of examples")
            for example in examples:
                if self._fits(rule, example, key) is not expected:
                    does = "does not match" if expected else "matches"
                    self._refuse(key, f"the rule's pattern {rule.text} {does} {example!r}")

    def _fits(self, rule: Rule, example: Any, key: str) -> bool:
        if isinstance(rule.pattern, str):
            if not isinstance(example, str):
                self._refuse(key, f"the example {example!r} must be text")
            return matches_glob(rule.pattern, example)
        if isinstance(example, str):
            try:
                example = shlex.split(example)
            except ValueError as error:
                self._refuse(
                    key, f"the example {example!r} is no command line: {short_message(error)}"
                )
        if not isinstance(example, list) or not all(isinstance(word, str) for word in example):
            self._refuse(key, f"the example {example!r} must be a command line or a list of words")
        return bool(rule.words_matched(example))


class RulePlaces:
    """Line numbers of the rules of a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._toml = TomlPlaces(text)
        self._rules: list[list[Statement]] = []  # for each [[rule]] its header, then its keys
        inside = False
        for statement in self._toml.statements:
            if statement.kind != "key":
                inside = statement.kind == "array" and statement.path == ("rule",)
                if inside:
                    self._rules.append([statement])
            elif inside:
                self._rules[-1].append(statement)

    def line_of(self, rule: int, key: str = "") -> int:
        """Return the line of a rule's key, else of the rule, else of the first mention of rules."""
        if rule >= len(self._rules):  # written as rule = [{…}]
            return self.line_of_top("rule")
        header, *keys = self._rules[rule]
        return next((each.first for each in keys if each.path[1] == key), header.first)

    def line_of_top(self, key: str) -> int:
        """Return the line of a key or table at the top level."""
        return self._toml.line_of(key)

    def is_marked(self, rule: int) -> bool:
        """Tell whether the comment of an answer is above a rule."""
        above = self._rules[rule][0].first - 2 if rule < len(self._rules) else -1
        return above >= 0 and self._toml.lines[above].startswith(MARK)

    def without(self, rule: int) -> str:
        """Return the text without one rule and the comment that an answer wrote above it."""
        if rule >= len(self._rules):
            raise FatalError("This rule is not written as a [[rule]] table; remove it by hand.")
        start = self._rules[rule][0].first - self.is_marked(rule)
        return without_lines(self._toml.lines, [(start, self._rules[rule][-1].last)])


# -- writing --------------------------------------------------------------------------------------


def rule_text(rule: Rule, comment: str) -> str:
    """Return a rule of plain words or a glob as TOML, with a comment that marks it as approved.

    Args:
        rule: the rule.
        comment: text after the mark; unprintable characters are escaped.
    """
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in comment)
    if isinstance(rule.pattern, str):
        pattern = toml_text(rule.pattern)
    else:
        pattern = f"[{', '.join(toml_text(words[0]) for words in rule.pattern)}]"
    lines = [
        f"{MARK}{shown}",
        "[[rule]]",
        f"permission = {toml_text(rule.permission)}",
        f"pattern = {pattern}",
        f"decision = {toml_text(rule.decision)}",
    ]
    if rule.exact:
        lines.append("exact = true")
    if rule.sandbox:
        lines.append(f"sandbox = {toml_text(rule.sandbox)}")
    if rule.justification:
        lines.append(f"justification = {toml_text(rule.justification)}")
    return "\n".join(lines) + "\n"
