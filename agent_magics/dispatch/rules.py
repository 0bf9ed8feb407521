"""The rules that hold in a run: those of the person, and those of the project once it is trusted.

Law: the strictest rule that matches wins. A project's rules may always make things stricter; what
they allow holds only while the file is, byte for byte, the one that the person trusted. What is not
understood is never allowed.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from agent_magics.dispatch.exec_danger import (
    loose_commands_of,
    without_global_options,
    words_that_run,
)
from agent_magics.dispatch.exec_place import Effort, TooLongToJudge
from agent_magics.dispatch.exec_prefix import runs_another
from agent_magics.dispatch.exec_script import commands_of
from agent_magics.dispatch.glob import matches_glob
from agent_magics.dispatch.rules_file import (
    DECISIONS,
    HEADER,
    Rule,
    RulePlaces,
    RulesFile,
    parse_rules,
    read_rules,
    rule_text,
)
from agent_magics.dispatch.toml_edit import write_text
from agent_magics.dispatch.toml_places import identity_of
from agent_magics.dispatch.trust import TrustedDigest
from agent_magics.protocol.errors import FatalError

FOLDER, NAME = ".agent_magics", "rules.toml"


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """What the rules say.

    Attributes:
        decision: "allow", "prompt" or "forbid".
        rule: the one that decides; of several of the same strictness the first.
        sandbox: "bypass" where the command may leave the sandbox, else "default".
        prefixes: of an allowed command, the words that the rules themselves name.
    """

    decision: str
    rule: Rule
    sandbox: str = "default"
    prefixes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """What "always" would allow.

    Attributes:
        pattern: words of a command, or a glob.
        sandbox: "bypass" where it would run outside the sandbox.
    """

    permission: str
    pattern: tuple[str, ...] | str
    sandbox: str = ""

    def as_rule(self, justification: str = "") -> Rule:
        """Return it as a rule that allows."""
        words = (
            self.pattern
            if isinstance(self.pattern, str)
            else tuple((word,) for word in self.pattern)
        )
        return Rule(self.permission, words, "allow", self.sandbox, justification=justification)

    @property
    def text(self) -> str:
        """What it covers, as a person reads it."""
        return self.as_rule().text


class RuleBook:
    """The rules for one workspace; what has changed on disk is read again by `refresh`.

    Args:
        folder: the workspace, where relative globs start.
        user_file: the person's own rules.
        state: where the digests of trusted files are kept.

    Raises:
        FatalError: a file of rules is not understood; says file and line.
    """

    def __init__(
        self, folder: Path, *, user_file: Path | None = None, state: Path | None = None
    ) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.project_file = self.folder / FOLDER / NAME
        self.user_file = user_file or user_rules_file()
        self._trusted = TrustedDigest(self.folder, state or trust_folder())
        self._user = read_rules(self.user_file, "user")
        self._project = read_rules(self.project_file, "project")

    def refresh(self) -> None:
        """Read again what has changed.

        Raises:
            FatalError: a file is no longer understood.
        """
        if identity_of(self.user_file) != self._user.identity:
            self._user = read_rules(self.user_file, "user")
        if identity_of(self.project_file) != self._project.identity:
            self._project = read_rules(self.project_file, "project")

    # -- what holds -------------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        """Whether what the project's file allows holds."""
        return bool(self._project.digest) and self._trusted.read() == self._project.digest

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that hold, the person's first."""
        return (*self._user.rules, *self._holding(self._project))

    @property
    def withheld(self) -> tuple[Rule, ...]:
        """The project's rules that would hold if its file were trusted."""
        if self.is_trusted:
            return ()
        return tuple(rule for rule in self._project.rules if not _is_strict(rule))

    @property
    def user_rules(self) -> tuple[Rule, ...]:
        """All rules of the person's own file."""
        return self._user.rules

    @property
    def project_rules(self) -> tuple[Rule, ...]:
        """All rules of the project's file, whether they hold or not."""
        return self._project.rules

    def _holding(self, file: RulesFile) -> tuple[Rule, ...]:
        if all(map(_is_strict, file.rules)) or self.is_trusted:
            return file.rules
        return tuple(replace(rule, sandbox="") for rule in file.rules if rule.decision != "allow")

    def decide(
        self,
        permission: str,
        subject: str | Sequence[str],
        agent: str = "default",
        *,
        safe: Callable[[Sequence[str]], bool] = lambda words: False,
    ) -> RuleDecision | None:
        """Return what the rules say about one thing, None where they say nothing.

        Args:
            permission: what it needs, such as "command" or "write".
            subject: the words of a command line, or a path or name.
            agent: the agent's name.
            safe: tells of one command of a script that it needs no rule.
        """
        held = self.rules
        if not held:
            return None
        rules = [
            rule
            for rule in held
            if rule.permission == permission and fnmatchcase(agent, rule.agent)
        ]
        if not rules:
            return None
        if isinstance(subject, str):
            return _strictest([rule for rule in rules if self._covers(rule, subject)])
        everywhere = [rule for rule in rules if rule.pattern == "*"]  # network, every command
        return _decide_command(rules, tuple(subject), everywhere, safe)

    def _covers(self, rule: Rule, subject: str) -> bool:
        pattern = rule.pattern
        if not isinstance(pattern, str):
            return False
        if rule.permission not in ("read", "write"):
            return matches_glob(pattern, subject)
        absolute = os.path.normpath(self.folder / subject)
        if pattern.startswith("~/"):
            pattern = os.path.expanduser("~") + pattern[1:]  # noqa: PTH111 - text, not a path
        if pattern.startswith("/"):
            return matches_glob(pattern, absolute)
        inside = absolute == str(self.folder) or absolute.startswith(f"{self.folder}/")
        return inside and matches_glob(pattern, os.path.relpath(absolute, self.folder))

    # -- trust ------------------------------------------------------------------------------------

    def trust(self) -> None:
        """Let what the project's file allows hold, as long as the file is as it is now.

        Raises:
            OSError: that cannot be kept.
        """
        self._trusted.keep(self._project.digest)

    @property
    def may_grow(self) -> bool:
        """Whether an answer may be written to the project's file.

        Not beside allowing rules that nobody has trusted: trusting the new content would trust
        them as well.
        """
        if self._project.rules and not self.is_trusted:
            return all(map(_is_strict, self._project.rules))
        return True

    # -- changing the files -----------------------------------------------------------------------

    def add(self, proposed: ProposedRule, comment: str) -> Rule:
        """Write an allowing rule into the project's file and trust the file as it then is.

        Args:
            proposed: what is allowed.
            comment: what it was approved for; one line.

        Returns:
            The rule.

        Raises:
            FatalError: the file holds allowing rules that are not trusted, or is not understood.
            OSError: it cannot be written.
        """
        self._project = read_rules(self.project_file, "project")
        if not self.may_grow:
            raise FatalError(
                f"{self.project_file} allows things that you have not trusted; look at it and say "
                "%agent approvals trust first."
            )
        rule = proposed.as_rule(f"approved on {date.today().isoformat()}")
        for known in self._project.rules:
            if _says_the_same(known, rule):
                return known
        _check_folder(self.project_file.parent)
        text = self._project.text or HEADER
        separator = "" if text.endswith("\n") else "\n"
        comment = f"{date.today().isoformat()}: {comment}"
        self._rewrite(f"{text}{separator}\n{rule_text(rule, comment)}", trust=True)
        return self._project.rules[-1]

    def remove(self, rule: Rule) -> None:
        """Take a rule out of its file; the rest stays as it is, and trusted if it was.

        Raises:
            FatalError: the rule is not there any more, or cannot be taken out by itself.
            OSError: the file cannot be written.
        """
        self.refresh()
        file = self._user if rule.origin == "user" else self._project
        if rule not in file.rules:
            raise FatalError(f"The rule {rule.text} is not in {file.path} any more.")
        text = RulePlaces(file.text).without(rule.number)
        if rule.origin == "project":
            self._rewrite(text, trust=self.is_trusted)
        else:
            parse_rules(text, file.path, "user")
            write_text(file.path, text)
            self.refresh()

    def _rewrite(self, text: str, *, trust: bool) -> None:
        """Replace the project's file by a text that is known to be understood."""
        parse_rules(text, self.project_file, "project")
        write_text(self.project_file, text)
        if trust:
            # Of what was meant to be written, whatever stands there by now.
            self._trusted.keep(hashlib.sha256(text.encode("utf-8")).hexdigest())
        self._project = read_rules(self.project_file, "project")


def _is_strict(rule: Rule) -> bool:
    """Tell whether a rule can only take away: what a file may say that nobody has trusted."""
    return rule.decision != "allow" and rule.sandbox != "bypass"


def _says_the_same(one: Rule, other: Rule) -> bool:
    blank = {"justification": "", "origin": "", "file": "", "number": 0, "line": 0}
    return replace(one, by_answer=False, **blank) == replace(other, by_answer=False, **blank)


def _check_folder(folder: Path) -> None:
    """Make the project's folder for settings, which may not be a link to another place."""
    folder.mkdir(exist_ok=True)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise FatalError(f"{folder} is no folder of this project; nothing was written.")


# -- deciding -------------------------------------------------------------------------------------


def _strictest(matching: Sequence[Rule]) -> RuleDecision | None:
    if not matching:
        return None
    decision = max((rule.decision for rule in matching), key=DECISIONS.index)
    deciding = [rule for rule in matching if rule.decision == decision]
    said = {rule.sandbox for rule in deciding}
    sandbox = "bypass" if "bypass" in said and "default" not in said else "default"
    first = next((rule for rule in deciding if rule.sandbox == sandbox), deciding[0])
    return RuleDecision(decision, first, sandbox)


def _decide_command(
    rules: Sequence[Rule],
    argv: tuple[str, ...],
    everywhere: Sequence[Rule],
    safe: Callable[[Sequence[str]], bool],
) -> RuleDecision | None:
    """Judge a command line, and what a shell would make of it."""
    strict = [rule for rule in rules if rule.decision != "allow"]
    found = _decide_strictly(strict, argv, everywhere) if strict else None
    if found is not None:
        return found
    allowing = [rule for rule in rules if rule.decision == "allow"]
    spelt_out = [rule for rule in allowing if rule.words_matched(argv) == len(argv)]
    if found := _strictest([*spelt_out, *(rule for rule in allowing if rule in everywhere)]):
        return replace(found, prefixes=(argv,))
    commands = commands_of(argv)
    if commands is None:
        return None
    return _decide_commands(allowing, commands, safe)


def _decide_commands(
    allowing: Sequence[Rule],
    commands: Sequence[Sequence[str]],
    safe: Callable[[Sequence[str]], bool],
) -> RuleDecision | None:
    """Allow a command line if a rule allows each of its commands, or it is known to be safe."""
    decisions: list[RuleDecision] = []
    for words in commands:
        matching = [rule for rule in allowing if _allows(rule, words)]
        decision = _strictest(matching)
        if decision is not None:
            longest = max(rule.words_matched(words) for rule in matching)
            decisions.append(replace(decision, prefixes=(tuple(words[:longest]),)))
        elif not safe(words):
            return None
    if not decisions:
        return None
    # Together they run in one place, so all of them must be allowed to leave the sandbox.
    outside = len(decisions) == len(commands) and all(d.sandbox == "bypass" for d in decisions)
    return replace(
        decisions[0],
        sandbox="bypass" if outside else "default",
        prefixes=tuple(prefix for decision in decisions for prefix in decision.prefixes),
    )


def _allows(rule: Rule, words: Sequence[str]) -> bool:
    matched = rule.words_matched(words)
    return bool(matched) and not runs_another(words, matched)


def _decide_strictly(
    strict: Sequence[Rule], argv: tuple[str, ...], everywhere: Sequence[Rule]
) -> RuleDecision | None:
    """Look for a strict rule that is about `argv`, or about anything that it seems to run."""
    effort = Effort()
    try:
        commands = [argv, *loose_commands_of(argv, effort)]
        starts = [_command_at(words, at) for words in commands for at in words_that_run(words)]
        effort.spend(len(starts) * len(strict))
    except TooLongToJudge:
        # One of the rules may be about it: somebody is to look.
        return RuleDecision("prompt", strict[0])
    return _strictest(
        [
            rule
            for rule in strict
            if rule in everywhere or any(rule.words_matched(words) for words in (argv, *starts))
        ]
    )


_LONGEST_PATTERN = 50  # words of a command that are compared


def _command_at(words: Sequence[str], at: int) -> list[str]:
    """Return the command that begins with word `at`, its program by its bare name."""
    command = [words[at].rpartition("/")[2], *words[at + 1 : at + _LONGEST_PATTERN]]
    return without_global_options(command)


# -- places ---------------------------------------------------------------------------------------


@cache
def _platform_folder(kind: str) -> Path:
    import platformdirs  # noqa: PLC0415 - 5 ms that `import agent_magics` need not pay

    find = {"config": platformdirs.user_config_dir, "state": platformdirs.user_state_dir}[kind]
    return Path(find("agent-magics", appauthor=False))


def user_rules_file() -> Path:
    """Return where the person's own rules stand (the platform's folder for settings)."""
    return _platform_folder("config") / NAME


def user_tools_folder() -> Path:
    """Return where the person's own tools stand, beside their rules."""
    return _platform_folder("config") / "tools"


def user_config_file() -> Path:
    """Return where the person's own settings stand, beside their rules."""
    return _platform_folder("config") / "config.toml"


def trust_folder(what: str = "rules") -> Path:
    """Return where it is kept which files of projects are trusted: "rules", "tools" or "mcp"."""
    return _platform_folder("state") / f"trusted-{what}"
