"""Decides by rules about a command line: the strictest matching rule wins, for each command in
it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_magics.approval.commands.danger import (
    loose_commands_of,
    without_global_options,
    words_that_run,
)
from agent_magics.approval.commands.place import Effort, TooLongToJudge
from agent_magics.approval.commands.prefixes import covers_rest
from agent_magics.approval.commands.running import runs_another
from agent_magics.approval.commands.script import commands_of
from agent_magics.approval.commands.words import program_of
from agent_magics.approval.rules_file import DECISIONS, Rule


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """The combined decision of the rules.

    Attributes:
        decision: "allow", "prompt" or "forbid".
        rule: the deciding rule; the first of several equally strict ones.
        sandbox: "bypass" where the command may leave the sandbox, else "default".
        prefixes: for an allowed command, the words that the rules name.
    """

    decision: str
    rule: Rule
    sandbox: str = "default"
    prefixes: tuple[tuple[str, ...], ...] = ()


def strictest(matching: Sequence[Rule]) -> RuleDecision | None:
    """Return the decision of the strictest of the `matching` rules; None without any."""
    if not matching:
        return None
    decision = max((rule.decision for rule in matching), key=DECISIONS.index)
    deciding = [rule for rule in matching if rule.decision == decision]
    sandboxes = {rule.sandbox for rule in deciding}
    sandbox = "bypass" if "bypass" in sandboxes and "default" not in sandboxes else "default"
    first = next((rule for rule in deciding if rule.sandbox == sandbox), deciding[0])
    return RuleDecision(decision, first, sandbox)


def decide_command(
    rules: Sequence[Rule],
    argv: tuple[str, ...],
    everywhere: Sequence[Rule],
    safe: Callable[[Sequence[str]], bool],
) -> RuleDecision | None:
    """Judge a command line, and the commands that a shell would run."""
    strict = [rule for rule in rules if rule.decision != "allow"]
    found = _decide_strictly(strict, argv, everywhere) if strict else None
    if found is not None:
        return found
    allowing = [rule for rule in rules if rule.decision == "allow"]
    spelt_out = [rule for rule in allowing if rule.words_matched(argv) == len(argv)]
    if found := strictest([*spelt_out, *(rule for rule in allowing if rule in everywhere)]):
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
    """Allow a command line if each of its commands is allowed by a rule or known to be safe."""
    decisions: list[RuleDecision] = []
    for words in commands:
        matching = [rule for rule in allowing if _allows(rule, words)]
        decision = strictest(matching)
        if decision is not None:
            longest = max(rule.words_matched(words) for rule in matching)
            decisions.append(replace(decision, prefixes=(tuple(words[:longest]),)))
        elif not safe(words):
            return None
    if not decisions:
        return None
    # They run as one process, so all of them must be allowed to leave the sandbox.
    outside = len(decisions) == len(commands) and all(d.sandbox == "bypass" for d in decisions)
    return replace(
        decisions[0],
        sandbox="bypass" if outside else "default",
        prefixes=tuple(prefix for decision in decisions for prefix in decision.prefixes),
    )


def _allows(rule: Rule, words: Sequence[str]) -> bool:
    matched = rule.words_matched(words)
    if not matched or matched == len(words):
        return bool(matched)
    is_known = covers_rest(words, matched)
    if rule.by_answer:  # an unlisted command was approved exactly as it was
        return bool(is_known)
    # A handwritten rule allows more; for git, which has too many options, only known ones.
    return not runs_another(words, matched) and (is_known is not False or words[0] != "git")


def _decide_strictly(
    strict: Sequence[Rule], argv: tuple[str, ...], everywhere: Sequence[Rule]
) -> RuleDecision | None:
    """Find a strict rule that matches `argv`, or anything that it seems to run."""
    effort = Effort()
    try:
        commands = [argv, *loose_commands_of(argv, effort)]
        starts = [
            words[at : at + _LONGEST_COMPARED] for words in commands for at in words_that_run(words)
        ]
        effort.spend(2 * len(starts) * len(strict))
        forms = [form for words in starts for form in _forms_of(words)]
    except TooLongToJudge:
        # One of the rules may match, so the person is asked.
        return RuleDecision("prompt", strict[0])
    return strictest(
        [rule for rule in strict if rule in everywhere or any(map(rule.words_matched, forms))]
    )


_LONGEST_COMPARED = 51  # words: one more than a pattern may have


def _forms_of(words: Sequence[str]) -> list[Sequence[str]]:
    """Return a command as it is written, and its program without folder and git's own options."""
    return [words, without_global_options([program_of(words[0]), *words[1:]])]
