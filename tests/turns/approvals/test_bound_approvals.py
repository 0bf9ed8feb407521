"""What an approval to leave the sandbox is bound to: known bytes, or this one run and no more."""

import shlex
import shutil

import pytest

from agent_magics.approval.actions import NOT_BOUND
from agent_magics.exec.launcher_client import current_tier
from tests.support.turns import scripted

# Each runs the content of a file that a command in the sandbox may change.
FORMS = [
    *("bash x.sh", "sh x.sh", "./x.sh", "bash ./x.sh", "bash $PWD/x.sh", 'bash "$PWD"/x.sh'),
    *("cd sub && bash y.sh", "cd sub; ./y.sh", "(cd sub && sh y.sh)", "pushd sub && bash y.sh"),
    *("env -C sub bash y.sh", "env A=1 bash x.sh", "A=1 bash x.sh", "env ./x.sh"),
    *("timeout 60 bash x.sh", "nice -n 5 bash x.sh", "nohup bash x.sh", "time bash x.sh"),
    *("source ./x.sh", ". ./x.sh", "eval ./x.sh", "exec bash x.sh", "command bash x.sh"),
    *("cat x.sh | bash", "bash < x.sh", "bash <(cat x.sh)", 'bash -c "$(cat x.sh)"'),
    *("echo ./x.sh | xargs -n1 bash", "find . -name x.sh -exec bash {} ;", "bash -lc ./x.sh"),
    *(
        "for f in x.sh; do bash $f; done",
        "for f in *.sh; do bash $f; done",
        "if bash x.sh; then :; fi",
    ),
    *(
        "while ! bash x.sh; do break; done",
        "f() { bash x.sh; }; f",
        "bash x.sh && ls",
        "ls; sh x.sh",
    ),
    *("python3 p.py", "python3 -m pkg", "python3 -c 'import pkg'", "python3 sub/../p.py"),
    *("make", "make -s all", "make -C sub", "awk -f a.awk x.sh", "sed -f a.sed x.sh"),
    *("git -c core.pager=./x.sh log", "sort --compress-program=./x.sh x.sh", "perl p.pl"),
    *("./run", "$PWD/run", "sub/../run", "PATH=.:$PATH run", "bash --rcfile x.sh -i -c ls"),
    *("bash -x x.sh", "bash -- x.sh", "setsid bash x.sh", "stdbuf -o0 bash x.sh", "pytest"),
    # What it carries out of the sandbox runs there later.
    *("cp x.sh copy", "mv x.sh copy", "ln -sf x.sh copy", "tee copy < x.sh", "cat x.sh | tee copy"),
    *("chmod u+s x.sh", "chmod 4755 run && true", "install x.sh copy", "cat x.sh > copy"),
    *("dd if=x.sh of=copy", "cp -r sub copies", "rsync x.sh copy", "cd sub && cp y.sh ../copy"),
]


@pytest.fixture
def project(tmp_path):
    """A project in which every form runs something that says which content it has."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "pkg").mkdir()
    write(tmp_path, "one")
    return tmp_path


def write(project, word):
    for name in ("x.sh", "run", "sub/y.sh"):
        (project / name).write_text(
            f"#!/bin/sh\necho {word} >> '{project}/said'\n", encoding="utf-8"
        )
        (project / name).chmod(0o755)
    text = f"open({str(project / 'said')!r}, 'a').write('{word}')\n"
    for name in ("p.py", "pkg/__init__.py", "pkg/__main__.py", "pkg/p.py", "conftest.py"):
        (project / name).write_text(text, encoding="utf-8")
    for folder in (project, project / "sub"):
        (folder / "Makefile").write_text(f"all:\n\techo {word}\n", encoding="utf-8")
    for name in ("a.awk", "a.sed", "p.pl"):
        (project / name).write_text(f"# {word}\n", encoding="utf-8")


def escalated(form, permissions="require_escalated"):
    return {"command": form, "sandbox_permissions": permissions, "justification": "it must be"}


def agent_with(answer, **options):
    return scripted(tools=("shell_command", "shell"), on_question=answer, **options)


# A shell's own printf sets variables, and runs what stands in a subscript.
PRINTED = ["printf -v 'a[$(bash x.sh)]' 1", "printf -v PATH . && run", "printf %n PATH && run"]


@pytest.mark.soak
@pytest.mark.parametrize("form", [*FORMS, *PRINTED])
def test_no_lasting_answer_lets_other_content_out(project, form):
    assert current_tier() >= 1, "this machine has no sandbox: tier 1 was not tested"
    asked = []

    def answer(question):
        asked.append(question)
        return "approve_for_session" if len(asked) == 1 else "deny"

    agent = agent_with(answer, cwd=project, approval="on-request")
    agent.call_sync("shell_command", escalated(form))
    write(project, "two")
    agent.call_sync("shell_command", escalated(form))
    assert len(asked) == 2
    assert asked[0].scopes == () and NOT_BOUND in asked[0].reason
    said = project / "said"
    assert not said.exists() or "two" not in said.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["network", "write", "no sandbox", "repeat"])
def test_the_same_holds_for_every_way_to_more_rights(project, kind, monkeypatch, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    asked = []
    if kind == "no sandbox":
        monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    permissions = {"network": "require_network", "write": {"write": [str(outside)]}}
    arguments = escalated("bash x.sh", permissions.get(kind, "use_default"))
    if kind == "repeat":
        (project / "x.sh").write_text(f"touch '{outside}/made'\n", encoding="utf-8")
    agent = agent_with(
        lambda question: asked.append(question) or "approve_for_session",
        cwd=project,
        approval="on-failure",
    )
    for _ in range(2):
        agent.call_sync("shell_command", arguments)
    assert [question.scopes for question in asked] == [(), ()]
    assert all(NOT_BOUND in question.reason for question in asked)


# While a question is open, each of these names a file that changes: it is seen before it starts.
NAMED = [
    form
    for form in FORMS
    if "*" not in form
    and "import pkg" not in form
    and form not in ("make", "make -s all", "pytest")
    and not form.startswith("PATH")
]


# Names that a shell or another program composes.
COMPOSED = [
    *("bash {x,}.sh", "bash x.s?", "bash [x].sh", "bash x.s*", 'bash "$(pwd)/x.sh"'),
    *("env -S 'bash x.sh'", "find . -name 'x*' -exec bash {} ;", "ls *.sh | xargs -n1 bash"),
    *(
        "for f in x y; do bash $f.sh; done",
        "p=p; python3 $p.py",
        "python3 -m p",
        "python3 -m pkg.p",
    ),
    *("git -c alias.z='!./x.sh' z", "awk 'BEGIN{system(\"./x.sh\")}'", "sed '1e ./x.sh' x.sh"),
    *("python3 -c \"exec(open('p.py').read())\"", f": {' '.join(map(str, range(300)))}; sh x.sh"),
]


@pytest.mark.soak
@pytest.mark.parametrize("form", [*NAMED, *COMPOSED])
def test_a_named_file_that_changes_while_the_question_is_open_is_asked_about_again(project, form):
    asked = []

    def answer(question):
        asked.append(question)
        write(project, f"changed{len(asked)}")
        return "approve"

    agent = agent_with(answer, cwd=project, approval="on-request")
    output = agent.call_sync("shell_command", escalated(form))
    assert len(asked) == 2, "it is asked about again, once"
    assert "has changed since it was checked" in output.text
    assert not (project / "said").exists()


# Of these no script is known whose content the call itself is bound to.
REPEATED = [
    "make -C sub",
    "python3 -m pkg",
    "cat x.sh | sh",
    'sh -c "$(cat x.sh)"',
    "env -C sub ./y.sh",
]


@pytest.mark.parametrize("form", [*REPEATED, "bash x.sh"])
def test_what_changes_while_a_repeat_outside_is_asked_about_is_not_run(
    project, form, tmp_path_factory
):
    outside, asked = tmp_path_factory.mktemp("outside"), []

    def answer(question):
        asked.append(question)
        if len(asked) == 1:
            write(project, "two")
        return "approve"

    agent = agent_with(answer, cwd=project, approval="on-failure")
    line = {"command": f"touch '{outside}/made' && {form}"}
    output = agent.call_sync("shell_command", line)
    assert len(asked) == 1 and not (outside / "made").exists()
    assert "was not run: what it would touch has changed" in output.text
    assert agent.call_sync("shell_command", line).success and (outside / "made").exists()


def test_data_may_change_meanwhile_where_nothing_runs_it(project):
    asked = []

    def answer(question):
        asked.append(question)
        (project / "run.log").write_text(f"line {len(asked)}\n", encoding="utf-8")
        return "approve"

    agent = agent_with(answer, cwd=project, approval="on-request")
    output = agent.call_sync("shell_command", escalated("tail -n 1 *.log | cut -c1-80"))
    assert "line 1" in output.text and len(asked) == 1


@pytest.mark.parametrize("line", ["touch made", "mkdir -p d1 && touch d1/made", "rm -f b; ls | wc"])
def test_what_is_known_whole_may_be_allowed_for_longer(project, line):
    asked = []
    agent = agent_with(
        lambda question: asked.append(question) or "approve_for_session",
        cwd=project,
        approval="on-request",
    )
    for _ in range(2):
        agent.call_sync("shell_command", escalated(line))
    assert len(asked) == 1 and NOT_BOUND not in asked[0].reason


# What a person allows once for all, and then the same, or what the rule covers, through a link.
THROUGH_LINKS = [
    ("mkdir -p d1", "mkdir -p link/evil"),
    ("mkdir -p d1", "mkdir -p link/deep/er"),
    ("mkdir -p d1", "mkdir -p sub/../link/evil"),
    ("mkdir -p d1", "mkdir -p sub/link/evil"),
    ("mkdir -p d1", "bash -c 'mkdir -p link/evil'"),
    ("mkdir -p d1", "bash -c 'cd link && mkdir -p evil'"),
    ("mkdir -p d1", "bash -c 'cd sub && mkdir -p link/evil'"),
    ("mkdir -p d1", "mkdir -p chain/evil"),
    ("touch made", "touch link/evil"),
    ("touch made", "touch dangling"),
    ("touch made", "touch sub/dangling"),
    ("touch link/made", "touch link/made"),
    ("touch dangling", "touch dangling"),
    ("mkdir -p link/evil", "mkdir -p link/evil"),
    ("rm -f link/evil", "rm -f link/evil"),
    ("truncate -s 0 file", "truncate -s 0 file"),
    ("mkfifo link/evil", "mkfifo link/evil"),
]


@pytest.mark.soak
@pytest.mark.parametrize("answer", ["approve_for_session", "approve_for_project"])
@pytest.mark.parametrize(("allowed", "later"), THROUGH_LINKS)
def test_no_lasting_answer_leads_out_through_a_link(
    project, tmp_path_factory, allowed, later, answer
):
    """The link was made in the sandbox, after the answer."""
    assert current_tier() >= 1, "this machine has no sandbox: tier 1 was not tested"
    outside = tmp_path_factory.mktemp("outside")
    (project / "link").mkdir()  # which a command replaces
    (project / "file").write_text("mine", encoding="utf-8")
    (outside / "file").write_text("theirs", encoding="utf-8")
    asked = []

    def person(question):
        asked.append(question)
        return answer if len(asked) == 1 and answer in question.scopes else "deny"

    agent = agent_with(person, cwd=project, approval="on-request")
    agent.call_sync("shell", {**escalated(""), "command": shlex.split(allowed)})
    before = len(asked)
    shutil.rmtree(project / "link")
    for name, target in {
        "link": outside,
        "sub/link": outside,
        "chain": "link",
        "dangling": outside / "evil",
        "sub/dangling": outside / "evil",
    }.items():
        (project / name).unlink(missing_ok=True)
        (project / name).symlink_to(target)
    (project / "file").unlink()
    (project / "file").symlink_to(outside / "file")
    agent.call_sync("shell", {**escalated(""), "command": shlex.split(later)})
    assert len(asked) == before + 1
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text(encoding="utf-8") == "theirs"


ATTACHED = [
    *("date -fplain.txt", "date -ufplain.txt", "date -f./plain.txt", "date -fsub/../plain.txt"),
    *("grep -fplain.txt mine plain", "grep -inHfplain.txt mine", "touch -rplain.txt made"),
    *("touch -acmrplain made", "du -Xplain.txt", "bash -c 'date -fplain.txt'"),
    *("bash -c 'cd sub && date -f../plain.txt'", "date --file=plain.txt", "ls -I plain.txt"),
    *("cat ~root", "date -f~root"),  # which no shell reads
]


@pytest.mark.parametrize("line", ATTACHED)
def test_no_lasting_answer_follows_a_link_that_an_option_names(project, tmp_path_factory, line):
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_text("theirs", encoding="utf-8")
    for name in ("plain", "plain.txt", "~root"):
        (project / name).write_text("2020-01-01\n", encoding="utf-8")
    asked = []

    def person(question):
        asked.append(question)
        return "approve_for_session" if len(asked) == 1 else "deny"

    agent = agent_with(person, cwd=project, approval="on-request")
    command = {**escalated(""), "command": shlex.split(line)}
    agent.call_sync("shell", command)
    agent.call_sync("shell", command)
    assert len(asked) == 1, "the answer lasts"
    for name in ("plain", "plain.txt", "~root"):
        (project / name).unlink()
        (project / name).symlink_to(outside)
    agent.call_sync("shell", command)
    assert len(asked) == 2


def test_an_option_of_very_many_letters_is_for_one_run(project):
    (project / "plain").write_text("2020-01-01\n", encoding="utf-8")
    asked = []
    agent = agent_with(
        lambda question: asked.append(question) or "deny", cwd=project, approval="on-request"
    )
    for number in (70, 100_000):
        command = {**escalated(""), "command": ["date", f"-{'u' * number}fplain"]}
        agent.call_sync("shell", command)
        assert asked[-1].scopes == () and NOT_BOUND in asked[-1].reason


@pytest.mark.parametrize("line", ["./x -cnote", "./x -ab./note", "./x -c=note", "./x -cxsub/note"])
def test_a_file_that_an_option_names_is_compared_once_more(project, line):
    asked = []

    def answer(question):
        asked.append(question)
        for name in ("note", "sub/note"):
            (project / name).write_text(f"changed {len(asked)}", encoding="utf-8")
        return "approve"

    (project / "x").write_text("#!/bin/sh\n", encoding="utf-8")
    (project / "x").chmod(0o755)
    for name in ("note", "sub/note"):
        (project / name).write_text("one", encoding="utf-8")
    agent = agent_with(answer, cwd=project, approval="on-request")
    output = agent.call_sync("shell_command", escalated(line))
    assert len(asked) == 2 and "has changed since it was checked" in output.text


# Such programs read, outside the sandbox, what stands in a file or behind a link in a folder.
FINDERS = [
    *("grep -R mine d", "grep --dereference-r mine d", "grep -nR mine", "grep -rR mine ."),
    *("ls -LR d", "ls -R --derefer d", "du -aL d", "du -a --deref d", "rm -R d/more"),
    *("bash -c 'cd d && grep -R mine'", "bash -c 'cd d && ls -lRL'"),
]
NAMERS = [
    *("wc --files0-from=list", "wc --f list", "du --files0-f list"),
    *("sha256sum -c list", "md5sum -wc list", "cksum --check list", "sha1sum --ch list"),
]


@pytest.mark.soak
@pytest.mark.parametrize("line", FINDERS)
@pytest.mark.parametrize("target", ["the file outside", "the folder outside", ".env", ".git"])
def test_no_lasting_answer_follows_a_link_that_was_put_into_a_folder(
    project, tmp_path_factory, line, target
):
    assert current_tier() >= 1, "this machine has no sandbox: tier 1 was not tested"
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("theirs", encoding="utf-8")
    (project / ".env").write_text("KEY=1", encoding="utf-8")
    (project / ".git/hooks").mkdir(parents=True)
    (project / "d/more").mkdir(parents=True)
    asked = []

    def person(question):
        asked.append(question)
        return "approve_for_session" if len(asked) == 1 else "deny"

    agent = agent_with(person, cwd=project, approval="on-request")
    command = {**escalated(""), "command": shlex.split(line)}
    agent.call_sync("shell", command)
    agent.call_sync("shell", command)
    assert len(asked) == 1  # the answer lasts
    (project / "d/more").mkdir(exist_ok=True)  # as rm left it
    place = {"the file outside": outside / "file", "the folder outside": outside}
    (project / "d/more/link").symlink_to(place.get(target, project / target))
    agent.call_sync("shell", command)
    assert len(asked) == 2


@pytest.mark.parametrize("line", NAMERS)
def test_what_a_file_names_is_not_what_the_words_name(project, line):
    (project / "list").write_text("x.sh\0", encoding="utf-8")
    asked = []
    agent = agent_with(
        lambda question: asked.append(question) or "deny", cwd=project, approval="on-request"
    )
    agent.call_sync("shell", {**escalated(""), "command": shlex.split(line)})
    assert "approve_for_session" not in asked[0].scopes and NOT_BOUND in asked[0].reason


INNER = [
    *("mkdir -p link/made", "touch link/made", "rm -rf link/plain", "cat link/file", "ls link"),
    *("bash -c 'cd link && mkdir -p deep/er'", "touch name", "grep -R mine d", "du -L d"),
]


@pytest.mark.parametrize("line", INNER)
def test_a_link_within_what_commands_may_write_needs_no_further_question(project, line):
    (project / "real/plain").mkdir(parents=True)
    (project / "d").mkdir()
    (project / "real/file").write_text("mine", encoding="utf-8")
    for name, target in {"link": "real", "name": "real/file", "d/name": "../real/file"}.items():
        (project / name).symlink_to(target)
    asked = []
    agent = agent_with(
        lambda question: asked.append(question) or "approve_for_session",
        cwd=project,
        approval="on-request",
    )
    for _ in range(2):
        agent.call_sync("shell", {**escalated(""), "command": shlex.split(line)})
    assert len(asked) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    "line",
    [
        *("touch link/hooks/evil", "rm -rf link/hooks", "touch link/config", "cat name"),
        *("touch .git/commondir", "mkdir -p .agent_magics/tools", "cat .env", "touch sub/../.env"),
        *("ls whole", "rm -rf whole/.git", "ls many", "grep -R mine many"),
        "bash -c 'cd - && touch evil'",
    ],
)
def test_a_link_to_what_the_sandbox_keeps_is_asked_about_each_time(project, line):
    for folder in (".git/hooks", "nested/.git/hooks", "wide"):
        (project / folder).mkdir(parents=True)
    (project / ".env").write_text("KEY=1", encoding="utf-8")
    for number in range(501):
        (project / f"wide/{number}").touch()
    links = {"link": ".git", "name": ".env", "whole": "nested", "many": "wide"}
    for name, target in links.items():
        (project / name).symlink_to(target)
    asked = []
    agent = agent_with(
        lambda question: asked.append(question) or "deny", cwd=project, approval="on-request"
    )
    agent.call_sync("shell", {**escalated(""), "command": shlex.split(line)})
    assert "approve_for_session" not in asked[0].scopes
