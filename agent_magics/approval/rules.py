"""Combines the rules of a run: the person's, and the project's once it is trusted.

Law: the strictest matching rule wins. A project's rules may always make things stricter; its
allowing rules apply only while the file is, byte for byte, the one that the person trusted. A
command that is not understood is never allowed.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.approval.glob import matches_glob
from agent_magics.approval.read_rules import ReadRules, covering, unfollowed
from agent_magics.approval.rules_file import (
    HEADER,
    Rule,
    RulePlaces,
    RulesFile,
    parse_rules,
    read_rules,
    rule_text,
)
from agent_magics.config_files.places import (
    FOLDER,
    make_project_folder,
    trust_folder,
    user_rules_file,
)
from agent_magics.config_files.toml_edit import write_text
from agent_magics.config_files.trust import TrustedDigest
from agent_magics.files.locks import locked
from agent_magics.files.plain_files import file_stamp
from agent_magics.protocol.errors import FatalError

if TYPE_CHECKING:
    from agent_magics.approval.decisions import RuleDecision


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """The rule that a lasting answer would write.

    Attributes:
        permission: the kind of rule.
        pattern: words of a command, or a glob.
        sandbox: "bypass" where the command would run outside the sandbox.
        command: the exact command, which may be allowed instead of the prefix.
        exact: whether the words are the whole command.
        target: for a pattern that begins with a link, that of where it leads, which is allowed too.
    """

    permission: str
    pattern: tuple[str, ...] | str
    sandbox: str = ""
    command: tuple[str, ...] = ()
    exact: bool = False
    target: str = ""

    @property
    def narrowed(self) -> "ProposedRule":
        """The rule for the exact command alone."""
        return replace(self, pattern=self.command, command=(), exact=True)

    @property
    def text(self) -> str:
        """A description of what it covers, for the person."""
        return " and ".join(rule.text for rule in self.as_rules())

    def as_rules(self, justification: str = "") -> list[Rule]:
        """Return all allowing rules that it stands for."""
        pattern = self.pattern
        words = pattern if isinstance(pattern, str) else tuple((word,) for word in pattern)
        rule = Rule(self.permission, words, "allow", self.sandbox, exact=self.exact)
        rule = replace(rule, justification=justification)
        return [rule, replace(rule, pattern=self.target)] if self.target else [rule]


class RuleBook:
    """The rules for one workspace; `refresh` reads changed files again.

    Args:
        folder: the workspace, to which relative globs are relative.
        roots: other folders in which commands may change links.

    Attributes:
        user: the person's own file, as it was read last.
        project: the project's file, whose rules may not all apply; trust is bound to its digest.

    Raises:
        FatalError: a file of rules is malformed; the message names file and line.
    """

    def __init__(self, folder: Path, roots: Sequence[Path] = ()) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.roots = tuple(roots)
        temporary = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
        movable = (str(self.folder), *map(str, roots), *temporary)
        self._movable = tuple(os.path.realpath(each) for each in movable)
        self.project_file = self.folder / FOLDER / "rules.toml"
        self.user_file = user_rules_file()
        self._trusted = TrustedDigest(self.folder, trust_folder())
        self.user = read_rules(self.user_file, "user")
        self.project = read_rules(self.project_file, "project")

    def refresh(self) -> None:
        """Read changed files again.

        Raises:
            FatalError: a file is now malformed.
        """
        if file_stamp(self.user_file) != self.user.identity:
            self.user = read_rules(self.user_file, "user")
        if file_stamp(self.project_file) != self.project.identity:
            self.project = read_rules(self.project_file, "project")

    # -- applicable rules -------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        """Whether the allowing rules of the project's file apply."""
        return bool(self.project.digest) and self._trusted.read() == self.project.digest

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The applicable rules, the person's first."""
        return (*self.user.rules, *self._holding(self.project))

    @property
    def withheld(self) -> tuple[Rule, ...]:
        """The project's rules that would apply if its file were trusted."""
        if self.is_trusted:
            return ()
        return tuple(rule for rule in self.project.rules if not _is_strict(rule))

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
    ) -> "RuleDecision | None":
        """Return the rules' decision on one subject, None where no rule matches.

        Args:
            permission: the kind of rules, such as "command" or "write".
            subject: the words of a command line, or a path or name.
            agent: the agent's name.
            safe: tells whether one command of a script needs no rule.
        """
        held = self.rules
        if not held:
            return None
        rules = [rule for rule in held if rule.permission == permission and _is_about(rule, agent)]
        if not rules:
            return None
        # Late: seven modules that judge command lines, which a program without rules never uses.
        from agent_magics.approval.decisions import decide_command, strictest  # noqa: PLC0415

        if isinstance(subject, str):
            other = self.read_rules(agent).other_name(subject) if permission == "read" else ""
            names = (subject, *([other] if other else []))
            return strictest([rule for each in names for rule in self._covering(rules, each)])
        everywhere = [rule for rule in rules if rule.pattern == "*"]  # network, every command
        return decide_command(rules, tuple(subject), everywhere, safe)

    def _covering(self, rules: Sequence[Rule], subject: str) -> list[Rule]:
        """Return those of the rules, which are of one permission, that match a path or name."""
        if rules[0].permission in ("read", "write"):
            return covering(rules, subject, self.folder, self._movable)
        return [
            rule
            for rule in rules
            if isinstance(rule.pattern, str) and matches_glob(rule.pattern, subject)
        ]

    def unfollowed(self, rule: Rule) -> str:
        """Return to what the link leads with which a rule that allows begins, if no rule allows
        that; else "".
        """
        if rule.decision != "allow" or rule.permission not in ("read", "write"):
            return ""
        held = [each for each in self.rules if each.permission == rule.permission]
        return unfollowed(rule, held, self.folder, self._movable)

    def read_rules(self, agent: str = "default") -> ReadRules:
        """Return the rules about reading files that apply to an agent now.

        Raises:
            FatalError: a file has become malformed.
        """
        self.refresh()
        held = (rule for rule in self.rules if rule.permission == "read")
        return ReadRules(self.folder, tuple(rule for rule in held if _is_about(rule, agent)))

    # -- trust ------------------------------------------------------------------------------------

    def trust(self) -> None:
        """Trust the project's file with its current content, so that its allowing rules apply.

        Raises:
            FatalError: the digest could not be stored.
        """
        self._trusted.keep(self.project.digest)

    @property
    def may_grow(self) -> bool:
        """Whether an answer may be written to the project's file.

        Not while it has untrusted allowing rules: trusting the new content would trust them as
        well.
        """
        if self.project.rules and not self.is_trusted:
            return all(map(_is_strict, self.project.rules))
        return True

    # -- changing the files -----------------------------------------------------------------------

    def add(self, proposed: ProposedRule, comment: str) -> Rule:
        """Write an allowing rule into the project's file and trust the new content.

        Args:
            proposed: the rule.
            comment: what it was approved for; one line.

        Returns:
            The rule.

        Raises:
            FatalError: the file has untrusted allowing rules, or is malformed.
            OSError: it cannot be written.
        """
        make_project_folder(self.project_file.parent)
        with locked(self.project_file):
            return self._add(proposed, comment)

    def _add(self, proposed: ProposedRule, comment: str) -> Rule:
        self.project = read_rules(self.project_file, "project")
        if not self.may_grow:
            raise FatalError(
                f"{self.project_file} allows things that you have not trusted; look at it and say "
                "%agent approvals trust first."
            )
        rules = proposed.as_rules(f"approved on {date.today().isoformat()}")
        known = [old for new in rules for old in self.project.rules if _is_equivalent(old, new)]
        new = [rule for rule in rules if not any(_is_equivalent(old, rule) for old in known)]
        if not new:
            return known[0]
        text = self.project.text or HEADER
        separator = "" if text.endswith("\n") else "\n"
        comment = f"{date.today().isoformat()}: {comment}"
        added = "\n".join(rule_text(rule, comment) for rule in new)
        self._rewrite(f"{text}{separator}\n{added}", trust=True)
        return self.project.rules[-1]

    def remove(self, rule: Rule) -> None:
        """Remove a rule from its file; the rest is unchanged, and stays trusted if it was.

        Raises:
            FatalError: the rule is not in the file, or cannot be removed automatically.
            OSError: the file cannot be written.
        """
        with locked(self.user_file if rule.origin == "user" else self.project_file):
            self._remove(rule)

    def _remove(self, rule: Rule) -> None:
        self.refresh()
        file = self.user if rule.origin == "user" else self.project
        # Another kernel may have moved it by a change of its own.
        same = (
            each for each in file.rules if replace(each, number=rule.number, line=rule.line) == rule
        )
        found = next(same, None)
        if found is None:
            raise FatalError(f"The rule {rule.text} is not in {file.path} any more.")
        text = RulePlaces(file.text).without(found.number)
        if rule.origin == "project":
            self._rewrite(text, trust=self.is_trusted)
        else:
            parse_rules(text, file.path, "user")
            write_text(Path(os.path.realpath(file.path)), text)  # where a link leads
            self.refresh()

    def _rewrite(self, text: str, *, trust: bool) -> None:
        """Replace the project's file by a valid text."""
        parse_rules(text, self.project_file, "project")
        # Of the intended text, in case the file has changed since.
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        try:
            write_text(self.project_file, text)
            if trust:
                self._trusted.keep(digest)
        except BaseException:
            if self._trusted.read() != digest:
                self._put_back()
            raise
        self.project = read_rules(self.project_file, "project")

    def _put_back(self) -> None:
        """Give the project's file the content that it had, so that it is as trusted as it was."""
        with suppress(OSError):
            if self.project.digest:
                write_text(self.project_file, self.project.text)
            else:
                self.project_file.unlink()


def _is_strict(rule: Rule) -> bool:
    """Tell whether a rule can only restrict, so that it applies even in an untrusted file."""
    return rule.decision != "allow" and rule.sandbox != "bypass"


def _is_about(rule: Rule, agent: str) -> bool:
    """Tell whether a rule holds for an agent.

    One that restricts an agent ("main") restricts its sub-agents ("main/explore-1"), too; one that
    allows something holds for them only if its pattern says so ("main/*", "*").
    """
    path = agent.split("/")
    names = ("/".join(path[:end]) for end in range(1, len(path) + 1))
    who = names if _is_strict(rule) else (agent,)
    return any(fnmatchcase(name, rule.agent) for name in who)


def _is_equivalent(one: Rule, other: Rule) -> bool:
    blank: dict[str, Any] = {"justification": "", "origin": "", "file": "", "number": 0, "line": 0}
    return replace(one, by_answer=False, **blank) == replace(other, by_answer=False, **blank)
