"""What the rules say: the strictest match, scripts by their commands, and only what is trusted."""

import json
import shlex
import stat
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.approval.read_rules import covering
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.approval.rules_file import Rule
from agent_magics.config_files.places import trust_folder, user_rules_file
from agent_magics.config_files.trust import TrustedDigest
from agent_magics.protocol.errors import FatalError

HEAD = '[[rule]]\npermission = "{}"\npattern = {}\ndecision = "{}"\n'


def rule(permission, pattern, decision, **more):
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in more.items()]
    return HEAD.format(permission, json.dumps(pattern), decision) + "".join(lines)


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Makes the rules of a workspace: the person's own, and the project's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(user="", project="", trust=False):
        user_rules_file().parent.mkdir(parents=True, exist_ok=True)
        user_rules_file().write_text(user, encoding="utf-8")
        folder = tmp_path / "work" / ".agent_magics"
        folder.mkdir(parents=True, exist_ok=True)
        if project:
            (folder / "rules.toml").write_text(project, encoding="utf-8")
        made = RuleBook(tmp_path / "work")
        if trust:
            made.trust()
        return made

    return make


def said(book, line, permission="command", agent="default", safe=("ls", "cd", "head")):
    found = book.decide(
        permission,
        shlex.split(line) if permission in ("command", "network") else line,
        agent,
        safe=lambda words: words[0] in safe,
    )
    return found and (found.decision, found.sandbox)


ALLOW = ("allow", "default")

GIT = rule("command", ["git", ["status", "log", "fetch"]], "allow")


def test_the_strictest_match_wins_wherever_it_stands(book):
    held = book(
        rule("command", ["git"], "allow")
        + rule("command", ["git", "push"], "prompt")
        + rule("command", ["git", "push", "--force"], "forbid"),
    )
    assert said(held, "git status") == ALLOW
    assert said(held, "git push origin") == ("prompt", "default")
    assert said(held, "git push --force") == ("forbid", "default")
    assert said(held, "hg push") is None
    reversed_held = book(project=rule("command", ["git"], "forbid"), user=GIT)
    assert said(reversed_held, "git status") == ("forbid", "default")


def test_a_rule_may_be_for_some_agents_alone(book):
    held = book(rule("command", ["make"], "allow", agent="build*"))
    assert said(held, "make", agent="builder") == ALLOW
    assert said(held, "make", agent="default") is None


@pytest.mark.parametrize(
    "line",
    [
        "bash -c 'git status'",
        "bash -lc 'git status && git log -3'",
        "sh -c 'git status | head -3; ls'",
        "bash -c 'cd src && git status'",
        "/bin/bash -c 'git log'",
        "bash -c \"bash -c 'git status'\"",
    ],
)
def test_a_script_is_allowed_by_all_its_commands(book, line):
    assert said(book(GIT), line) == ALLOW


@pytest.mark.parametrize(
    "line",
    [
        "bash -c 'git status && make'",
        "bash -c 'make; git status'",
        "bash -c 'git status > out'",
        "bash -c 'git status $(make)'",
        "bash -c 'git status `make`'",
        "bash -c 'git status & make'",
        "bash -c 'X=1 git status'",
        "bash -c 'git status\nmake'",
        "bash -c 'git $X'",
        "bash -c 'git status *'",
        "bash -c 'git status # x'",
        "bash -c ''",
        "bash -x -c 'git status'",
        "bash -c 'git status' name",
        "bash -ic 'git status'",
        "fish -c 'git status'",
        "env git status",
        "sudo git status",
        "xargs git status",
        "git",
        "./git status",
        "./bash -c 'git status'",
        "tools/sh -lc 'git status'",
        "/srv/bash -c 'git status'",
        "bash -c \"./bash -c 'git status'\"",
        "bash -c \"ls && sh -c './sh -c ls'\"",
        "/usr/bin/git status",
        "git -c core.pager=evil status",
        "git fetch --upload-pack=evil .",
        "git fetch --upload-pa evil",
        "git log --ext-diff",
        "git log --output=x",
    ],
)
def test_what_is_not_understood_or_runs_more_is_never_allowed(book, line):
    assert said(book(GIT), line) is None


def test_a_rule_that_spells_an_option_out_covers_it(book):
    held = book(rule("command", ["git", "log", "--ext-diff"], "allow"))
    assert said(held, "git log --ext-diff -3") == ALLOW
    assert said(held, "git log --ext-diff --output=x") is None


def test_a_rule_that_spells_a_script_out_allows_that_script(book):
    held = book(rule("command", ["bash", "-c", "echo $HOME > out"], "allow"))
    assert said(held, "bash -c 'echo $HOME > out'") == ALLOW
    assert said(held, "bash -c 'echo $HOME > other'") is None
    assert said(held, "bash -c 'echo $HOME > out' more") is None


@pytest.mark.parametrize("shell", [["bash"], ["bash", "-c"], ["bash", "-lc"]])
def test_a_rule_for_a_shell_allows_no_script(book, shell):
    held = book(rule("command", shell, "allow"))
    assert said(held, "bash -c 'make && evil'") is None
    assert said(held, "bash -lc 'evil $(x)'") is None


def test_a_rule_for_a_shell_s_file_allows_it(book):
    held = book(rule("command", ["bash", "build.sh"], "allow"))
    assert said(held, "bash build.sh --fast") == ALLOW
    assert said(held, "bash other.sh") is None


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "/usr/bin/git push",
        "git -C sub push",
        "git -c a=b push",
        "sudo git push",
        "env A=b git push",
        "A=b git push",
        "timeout 5 git push",
        "xargs git push",
        "bash -c 'ls && git push'",
        "bash -c 'cd x; A=b git push > log 2>&1'",
        "bash -c 'echo $(git push)'",
        "bash -c 'echo \"$(git push)\"'",
        "bash -c 'if true; then git push; fi'",
        "bash -lc 'git push &'",
        "bash -c \"sh -c 'git push'\"",
        "bash -c 'git\tpush'",
        "bash -c 'g\"i\"t pu\\sh'",
        "bash -c 'git${IFS}push'",
        "bash -x -e -c 'git push'",
        "find . -exec git push ;",
        "script -qc 'git push' /dev/null",
        "setpriv --no-new-privs git push",
        "uv run --with x git push",
        "bash -c 'conda run -n base git push'",
        "direnv exec . git push",
        "fd -x git push",
        "uv run python -m git push",
        "git -c alias.p=push p",
        "git -c alias.p='!sh -c \"git push\"' p",
        "git -c alias.a=push -c alias.p='a -u' p",
        "bash -c 'timeout 5 git -c alias.p=push p'",
        "bash -c '</dev/null git push'",
        "bash -c 'ls; sudo <<<x git <y push'",
    ],
)
@pytest.mark.parametrize("decision", ["forbid", "prompt"])
def test_a_strict_rule_finds_its_command_anywhere(book, line, decision):
    held = book(rule("command", ["git", "push"], decision) + rule("command", ["git"], "allow"))
    assert said(held, line)[0] == decision


WRITTEN = ["./deploy.sh", "bin/deploy now", "/opt/deploy", "git -C ../x push", "git --bare"]


@pytest.mark.parametrize("words", WRITTEN)
@pytest.mark.parametrize("line", ["{}", "sudo {}", "bash -c '{} -v'", "timeout 5 sh -c 'ls;{}'"])
def test_a_strict_rule_finds_words_as_it_writes_them(book, line, words):
    held = book(rule("command", words.split(), "forbid"))
    assert said(held, line.format(words)) == ("forbid", "default")
    assert said(held, line.format("git push")) is None


@pytest.mark.parametrize(
    "line",
    [
        *("make", "bash -c make", "bash -lc make", "bash -c '\"make\"'", "sh -e -c make"),
        *(
            "bash -c -e make",
            "bash -o pipefail -c make",
            'bash -c "bash -c make"',
            "env sh -c make",
        ),
        *("bash -c /usr/bin/make", "bash -c 'ls; sh -c make'", "timeout 5 bash -ec make"),
    ],
)
def test_a_strict_rule_finds_a_script_of_one_word(book, line):
    held = book(rule("command", ["make"], "forbid"))
    assert said(held, line) == ("forbid", "default")


@pytest.mark.parametrize(
    "line", ["bash x.sh make", "bash make.sh", "echo make", "bash -c 'ls make'"]
)
def test_a_word_that_a_script_is_given_is_no_script(book, line):
    assert said(book(rule("command", ["make"], "forbid")), line) is None


@pytest.mark.parametrize("options", ["-m pip", "-mpip", "-Im pip", "-W ignore -X dev -m pip"])
def test_a_strict_rule_finds_a_module_that_python_runs(book, options):
    held = book(rule("command", ["pip", "install"], "forbid"))
    assert said(held, f"python3 {options} install x") == ("forbid", "default")
    assert said(held, f"bash -c 'env A=b python3 {options} install x'") == ("forbid", "default")
    assert said(held, f"python3 x.py {options} install x") is None
    assert said(held, "uv pip install x") is None


LEFT_ALONE = [
    *("git pull", "echo git push", "bash -c 'echo \"git push\"'", "uv add git push"),
    *("git -c alias.p=pull p", "git -c a.b=push pull", "git"),
]


@pytest.mark.parametrize("line", LEFT_ALONE)
def test_a_strict_rule_leaves_the_rest_alone(book, line):
    held = book(rule("command", ["git", "push"], "forbid"))
    assert said(held, line) is None


@pytest.mark.soak
def test_what_is_too_long_to_search_is_asked_about(book):
    held = book(rule("command", ["git", "push"], "forbid"))
    assert said(held, "bash -c '" + "echo a; " * 20_000 + "git push'")[0] == "prompt"
    assert said(book(GIT), "bash -c '" + "ls a; " * 20_000 + "git status'") is None


def test_a_way_out_of_the_sandbox_is_said_by_every_rule_of_a_script(book):
    held = book(GIT + rule("command", ["gh"], "allow", sandbox="bypass"))
    assert said(held, "gh pr list") == ("allow", "bypass")
    assert said(held, "bash -c 'gh pr list'") == ("allow", "bypass")
    assert said(held, "bash -c 'gh pr list; git status'") == ("allow", "default")
    assert said(held, "bash -c 'gh pr list | head'") == ("allow", "default")
    narrower = rule("command", ["gh", "api"], "allow", sandbox="default")
    both = book(narrower + rule("command", ["gh"], "allow", sandbox="bypass"))
    assert said(both, "gh api x") == ("allow", "default")
    assert said(both, "gh pr") == ("allow", "bypass")


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("src/**", ["src/a.py", "src"], ["lib/a.py", "../src/a.py", "/src/a.py"]),
        ("**/*.env", ["a.env", "x/y.env"], ["env"]),
        ("/etc/**", ["/etc/passwd", "../../../../../../../../../../etc/passwd"], ["etc/passwd"]),
    ],
)
@pytest.mark.parametrize("permission", ["read", "write"])
def test_paths_are_compared_where_they_lead(book, permission, pattern, covered, others):
    held = book(rule(permission, pattern, "forbid"))
    for path in covered:
        assert said(held, path, permission) == ("forbid", "default"), path
        absolute = str(held.folder / path)
        assert said(held, absolute, permission) == ("forbid", "default"), absolute
    for path in others:
        assert said(held, path, permission) is None, path
    other = "read" if permission == "write" else "write"
    assert said(held, covered[0], other) is None


def test_a_home_is_written_with_a_tilde(book, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    held = book(rule("read", "~/notes/**", "allow"))
    assert said(held, "/home/ada/notes/a", "read") == ALLOW
    assert said(held, "/home/bob/notes/a", "read") is None


def test_names_of_tools_and_servers_are_globs(book):
    held = book(rule("tool", "act*", "forbid") + rule("mcp", "mcp__git__*", "allow"))
    assert said(held, "act_now", "tool") == ("forbid", "default")
    assert said(held, "mcp__git__log", "mcp") == ALLOW
    assert said(held, "mcp__hub__log", "mcp") is None


def test_the_network_is_allowed_to_commands(book):
    held = book(rule("network", ["pip", "install"], "allow"))
    assert said(held, "pip install x", "network") == ALLOW
    assert said(held, "pip download x", "network") is None
    assert said(held, "pip install x") is None
    assert said(held, "bash -c 'pip install x'", "network") == ALLOW
    assert said(held, "./bash -c 'pip install x'", "network") is None
    everywhere = book(rule("network", "*", "forbid"))
    assert said(everywhere, "pip install x", "network") == ("forbid", "default")


ANY_SCRIPT = st.text("git puhlsa'\"\\\\$`(){}<>|&;#\n*=-", max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_SCRIPT)
def test_any_script_is_decided_and_what_is_odd_is_never_allowed(book, script):
    held = book(GIT + rule("command", ["git", "push"], "forbid"))
    found = held.decide("command", ["bash", "-c", script])
    assert found is None or found.decision in ("allow", "forbid", "prompt")
    bare = "".join(script.split("'")[::2])
    if any(character in bare for character in "$`<>\\*#\n(){}"):
        assert found is None or found.decision != "allow"


# -- trust ---------------------------------------------------------------------------------------

MIXED = (
    GIT
    + rule("command", ["make"], "forbid")
    + rule("command", ["tox"], "prompt")
    + rule("command", ["gh"], "prompt", sandbox="bypass")
)


def test_of_a_project_nobody_trusts_only_the_strict_rules_hold(book):
    held = book(project=MIXED)
    assert said(held, "git status") is None
    assert said(held, "make") == ("forbid", "default")
    assert said(held, "tox") == ("prompt", "default")
    assert said(held, "gh") == ("prompt", "default")
    assert [each.text for each in held.withheld] == ["git (status|log|fetch) …", "gh …"]
    held.trust()
    assert said(held, "git status") == ALLOW
    assert said(held, "gh") == ("prompt", "bypass")
    assert held.withheld == ()


def test_trust_is_kept_and_is_for_this_content_in_this_folder(book, tmp_path):
    held = book(project=MIXED, trust=True)
    again = book()
    assert said(again, "git status") == ALLOW
    (tmp_path / "work/.agent_magics/rules.toml").write_text(MIXED + "\n", encoding="utf-8")
    assert said(held, "git status") == ALLOW  # not read again yet
    for each in (held, again):
        each.refresh()
        assert said(each, "git status") is None
        assert said(each, "make") == ("forbid", "default")
    (tmp_path / "copy").mkdir()
    (tmp_path / "work/.agent_magics").rename(tmp_path / "copy/.agent_magics")
    copy = RuleBook(tmp_path / "copy")
    assert said(copy, "git status") is None


def test_what_is_kept_of_trust_is_for_the_person_alone(book, tmp_path):
    book(project=MIXED, trust=True)
    assert stat.S_IMODE(trust_folder().stat().st_mode) == 0o700


def test_a_broken_file_is_told_and_nothing_is_guessed(book, tmp_path):
    with pytest.raises(FatalError, match=r"rules\.toml, line 5: "):
        book(GIT + "nonsense\n")
    with pytest.raises(FatalError, match=r"rules\.toml, line 5: "):
        book(project=GIT + "x = 1\n")
    held = book(project=GIT)
    user_rules_file().write_text("x = 1", encoding="utf-8")
    with pytest.raises(FatalError, match=r"rules\.toml, line 1: "):
        held.refresh()


# -- answers become rules ------------------------------------------------------------------------

STATUS = ProposedRule("command", ("git", "status"))


def test_an_answer_becomes_a_rule_that_holds(book, tmp_path):
    held = book()
    (tmp_path / "work/.agent_magics").rmdir()
    assert said(held, "git status -s") is None
    added = held.add(STATUS, "git status\n-s")
    assert (added.text, added.by_answer) == ("git status …", True)
    assert said(held, "git status -s") == ALLOW
    assert said(held, "git log") is None
    path = tmp_path / "work/.agent_magics/rules.toml"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Rules of agent-magics for this project")
    assert f"# Approved on {date.today()}: git status\\u000a-s\n[[rule]]\n" in text
    assert f'justification = "approved on {date.today()}"' in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert said(book(), "git status") == ALLOW, "it holds in the next kernel"


def test_the_person_s_own_text_stays(book, tmp_path):
    own = "# mine\n\n" + rule("command", ["make"], "forbid") + "# the end"
    held = book(project=own)
    held.add(STATUS, "x")
    text = (tmp_path / "work/.agent_magics/rules.toml").read_text(encoding="utf-8")
    assert text.startswith(own + "\n\n# Approved on ")
    assert said(held, "make") == ("forbid", "default")


def test_the_same_answer_twice_is_one_rule(book):
    held = book()
    held.add(STATUS, "x")
    held.add(STATUS, "y")
    assert len(held.project.rules) == 1


def test_nothing_is_added_to_what_nobody_trusts(book, tmp_path):
    held = book()
    assert held.may_grow
    # Planted between the question and the answer.
    (tmp_path / "work/.agent_magics/rules.toml").write_text(GIT, encoding="utf-8")
    with pytest.raises(FatalError, match="trust first"):
        held.add(STATUS, "x")
    assert not held.may_grow
    assert said(held, "git log") is None
    held.trust()
    held.add(STATUS, "x")
    assert said(held, "git log") == ALLOW


def test_a_link_is_no_folder_of_the_project(book, tmp_path):
    held = book()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work/.agent_magics").rmdir()
    (tmp_path / "work/.agent_magics").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FatalError, match="no folder of this project"):
        held.add(STATUS, "x")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_rule_is_taken_back_and_the_rest_stays_trusted(book):
    held = book(project=GIT, user=rule("command", ["make"], "allow"), trust=True)
    held.add(STATUS, "x")
    held.remove(held.project.rules[1])
    assert said(held, "git log") == ALLOW
    assert len(held.project.rules) == 1
    [own] = held.user.rules
    held.remove(own)
    assert said(held, "make") is None
    with pytest.raises(FatalError, match="not in"):
        held.remove(own)


def test_a_rule_is_taken_back_where_the_persons_own_link_leads(book, tmp_path):
    held = book(user=rule("command", ["make"], "allow"))
    kept = user_rules_file().rename(tmp_path / "dotfiles.toml")
    user_rules_file().symlink_to(kept)
    held.remove(held.user.rules[0])
    assert user_rules_file().is_symlink() and "make" not in kept.read_text()


def test_a_rule_that_another_kernel_has_moved_is_taken_back(book):
    text = rule("command", ["make"], "allow") + GIT
    here, there = book(user=text), book(user=text)
    make, git = here.user.rules
    there.remove(there.user.rules[0])
    here.remove(git)
    assert here.user.rules == ()
    with pytest.raises(FatalError, match="not in"):
        here.remove(make)


def test_taking_back_trusts_nothing_new(book):
    held = book(project=GIT + rule("command", ["make"], "allow"))
    held.remove(held.project.rules[0])
    assert said(held, "make") is None


def test_a_rule_by_hand_for_git_covers_its_known_options_only(book):
    patterns = (["git", "diff"], ["mkdir"], ["make"])
    rules = book("".join(rule("command", words, "allow") for words in patterns))
    assert said(rules, "git diff --stat") == ("allow", "default")
    assert said(rules, "mkdir /srv/x") == ("allow", "default")
    assert said(rules, "make all") == ("allow", "default")
    for line in ("git diff --no-index /etc/shadow /dev/null", "git diff /etc/shadow /dev/null"):
        assert said(rules, line) is None


@pytest.mark.parametrize(
    ("line", "runs_another"),
    [
        *(("tar czf o.tar a", "tar cIf ./x o.tar a"), ("find . -name x", "find . -exec sh x ;")),
        *(("sed 1p a", "sed '1e ./x' a"), ("go build .", "go build --toolexec=./x .")),
        *(("rsync -a b c", "rsync -e ./x b h:c"), ("env", "env ./x"), ("fd -H x", "fd -x sh")),
        *(("awk 1 a", "awk 'BEGIN{system(1)}'"), ("ssh h ls", "ssh -o ProxyCommand=./x h")),
    ],
)
def test_a_rule_by_hand_covers_no_word_that_runs_another_program(book, line, runs_another):
    held = book(rule("command", [line.split()[0]], "allow", sandbox="bypass"))
    assert said(held, line) == ("allow", "bypass")
    assert said(held, runs_another) is None
    assert said(held, f"bash -c {shlex.quote(runs_another)}") is None


@pytest.mark.parametrize(
    ("allowed", "path", "is_allowed"),
    [
        (["data/**"], "data/x", False),
        (["data/**", "{disk}/real/**"], "data/x", True),
        (["data/**", "{disk}/real/**"], "other/x", False),
        (["{disk}/real/**"], "{disk}/real/x", True),
        (["{disk}/real/**"], "data/x", False),
        (["{disk}/link/**"], "{disk}/link/x", True),
        (["{disk}/link/**"], "{disk}/real/x", True),
        (["{disk}/link/**"], "{disk}/link/out/x", False),
        (["{disk}/away/**"], "{disk}/away/x", False),
        (["{disk}/chain/**"], "{disk}/chain/x", True),
        (["{disk}/loop/**"], "{disk}/loop/x", True),
    ],
)
def test_an_allowed_path_is_so_where_it_leads_too(tmp_path, allowed, path, is_allowed):
    """A rule follows a link that stands where no command can change it."""
    work, disk = tmp_path / "work", tmp_path / "disk"
    for folder in (work, disk / "real", tmp_path / "deep"):
        folder.mkdir(parents=True)
    (work / "data").symlink_to(disk / "real")
    (work / "other").symlink_to(tmp_path / "deep")
    (disk / "link").symlink_to("real")
    (disk / "chain").symlink_to("../disk/link")
    (disk / "away").symlink_to(work / "data")
    (disk / "loop").symlink_to("loop")
    (disk / "real/out").symlink_to(tmp_path / "deep")
    rules = [Rule("write", each.format(disk=disk), "allow") for each in allowed]
    found = covering(rules, path.format(disk=disk), work, (str(work),))
    assert bool(found) is is_allowed


def test_a_rule_that_does_not_hold_behind_its_link_is_known(book, tmp_path):
    (tmp_path / "disk").mkdir()
    behind, plain = rule("write", "data/**", "allow"), rule("write", "src/**", "allow")
    held = book(behind + plain)
    (tmp_path / "work/data").symlink_to(tmp_path / "disk")
    target = f"{tmp_path}/disk/**"
    assert [held.unfollowed(each) for each in held.rules] == [target, ""]
    held = book(behind + rule("write", target, "allow"))
    assert [held.unfollowed(each) for each in held.rules] == ["", ""]


@pytest.mark.parametrize("before", [rule("command", ["ls"], "allow"), ""])
@pytest.mark.parametrize("failure", [FatalError("a full disk"), KeyboardInterrupt()])
def test_a_rule_whose_trust_cannot_be_kept_is_not_added(book, monkeypatch, before, failure):
    made = book(project=before, trust=bool(before))

    def refuse(trusted, digest):
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(TrustedDigest, "keep", refuse)
        with pytest.raises(type(failure)):
            made.add(ProposedRule("command", ("echo",)), "for the test")
    made.refresh()
    assert (made.project.text, made.is_trusted) == (before, bool(before))
    made.add(ProposedRule("command", ("echo",)), "for the test")
    assert made.is_trusted and len(made.project.rules) == 1 + bool(before)


def test_a_rule_that_is_interrupted_once_its_trust_is_kept_is_added(book, monkeypatch):
    made, keep = book(), TrustedDigest.keep

    def interrupt(trusted, digest):
        keep(trusted, digest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrustedDigest, "keep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.add(ProposedRule("command", ("echo",)), "for the test")
    made.refresh()
    assert made.is_trusted and len(made.project.rules) == 1
