"""Changes touch what they name and nothing else: links, last line ends, read-only files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics import Agent
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.editing import edit_file, write_file
from agent_magics.tools.files.patch import apply_patch


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("target.txt")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "outside").symlink_to("/etc/hostname")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_folder").symlink_to("folder")
    return tmp_path


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@pytest.fixture
def questions(here):
    asked = []

    def on_question(question):
        asked.append(question.target)
        return "approve"

    with Agent(
        tools=["coding", "edit_file", "write_file"],
        cwd=here,
        approval="untrusted",
        on_question=on_question,
    ) as agent:
        yield agent, asked


@pytest.mark.parametrize("name", ["link", "dangling", "outside", "to_folder"])
def test_deleting_a_link_deletes_the_link(here, questions, name):
    agent, asked = questions
    result = agent.call_sync("apply_patch", {"patch": patch(f"*** Delete File: {name}")})
    assert result.success, result.text
    assert not (here / name).is_symlink()
    assert (here / "target.txt").read_text(encoding="utf-8") == "a\n"
    assert (here / "folder").is_dir()
    assert [name] == asked and f"D {name}" in result.text


@pytest.mark.parametrize("name", ["link", "dangling"])
def test_moving_a_link_moves_the_link(here, questions, name):
    agent, asked = questions
    leads = (here / name).readlink()
    given = {"patch": patch(f"*** Update File: {name}", "*** Move to: moved")}
    result = agent.call_sync("apply_patch", given)
    assert result.success, result.text
    assert (here / "moved").readlink() == leads and not (here / name).is_symlink()
    assert (here / "target.txt").read_text(encoding="utf-8") == "a\n"
    assert name in asked[0] and "moved" in asked[0]


def test_a_link_is_not_moved_and_changed_in_one(here):
    text = patch("*** Update File: link", "*** Move to: moved", "@@", "-a", "+b")
    with pytest.raises(RespondToModel, match="symbolic link"):
        apply_patch(text)
    assert (here / "link").is_symlink()
    assert (here / "target.txt").read_text(encoding="utf-8") == "a\n"


def test_a_change_through_a_link_names_the_same_file_before_and_after(here, questions):
    agent, asked = questions
    text = patch("*** Update File: link", "@@", "-a", "+b")
    result = agent.call_sync("apply_patch", {"patch": text})
    assert (here / "target.txt").read_text(encoding="utf-8") == "b\n"
    assert (here / "link").is_symlink()
    assert asked == ["target.txt"] and "M target.txt" in result.text


def test_a_link_that_was_deleted_comes_back_by_undo(here, questions):
    agent, _ = questions
    agent.call_sync("apply_patch", {"patch": patch("*** Delete File: link")})
    agent.undo()
    assert (here / "link").readlink().name == "target.txt"


def test_the_target_of_a_link_and_the_link_are_two_files(here):
    apply_patch(patch("*** Update File: target.txt", "@@", "-a", "+b", "*** Delete File: link"))
    assert (here / "target.txt").read_text(encoding="utf-8") == "b\n"
    assert not (here / "link").is_symlink()


# -- bytes ----------------------------------------------------------------------------------------


@given(
    before=st.text(st.sampled_from("ab \n\t\u00e9"), max_size=20),
    old=st.text(st.sampled_from("ab \n"), min_size=1, max_size=4),
    new=st.text(st.sampled_from("ab \nc"), max_size=4),
    form=st.sampled_from(["edit_file", "apply_patch"]),
)
def test_of_any_text_only_what_was_asked_changes(tmp_path_factory, before, old, new, form):
    path = tmp_path_factory.mktemp("bytes") / "f.txt"
    path.write_text(before, encoding="utf-8", newline="")
    if before.count(old) != 1 or old == new or before.find(old, before.find(old) + 1) >= 0:
        return
    if form == "edit_file":
        edit_file(str(path), old, new)
    else:
        apply_patch(file_path=str(path), original_content=old, updated_content=new)
    assert path.read_text(encoding="utf-8") == before.replace(old, new)


@given(
    above=st.lists(st.sampled_from(["a\n", "\r\n", "b\rc\r\n", "\n"]), max_size=4),
    below=st.lists(st.sampled_from(["a\r\n", "\n", "b\r\n", "b\rc\n"]), max_size=3),
    end=st.sampled_from(["\n", "\r\n"]),
    tail=st.sampled_from(["", "\r", "b", "b\rc\r"]),
    form=st.sampled_from(["edit_file", "write_file", "texts", "patch"]),
)
def test_carriage_returns_elsewhere_stay_as_they_are(
    tmp_path_factory, above, below, end, tail, form
):
    path = tmp_path_factory.mktemp("returns") / "f.txt"
    before = "".join((*above, f"old{end}", *below, tail))
    path.write_bytes(before.encode())
    after = before.replace("old", "new")
    if form == "edit_file":
        edit_file(str(path), "old", "new")
    elif form == "write_file":
        write_file(str(path), after.replace("\r\n", "\n"))
    elif form == "texts":
        apply_patch(file_path=str(path), original_content="old\n", updated_content="new\n")
    else:
        apply_patch(patch(f"*** Update File: {path}", "@@", "-old", "+new"))
    assert path.read_bytes() == after.encode()


@pytest.mark.parametrize("before", ["a\rold\rb\r", "a\r\nold\r", "old\r", "a\r\nold", "old\r\n"])
def test_the_line_that_is_changed_keeps_its_carriage_returns(here, before):
    after = before.replace("old", "new")
    for change in (
        lambda: write_file("f", after.replace("\r\n", "\n")),
        lambda: edit_file("f", "old", "new"),
        lambda: apply_patch(file_path="f", original_content="old", updated_content="new"),
    ):
        (here / "f").write_bytes(before.encode())
        change()
        assert (here / "f").read_bytes() == after.encode()


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["without the mark", "with the mark"])
def test_a_byte_order_mark_stands_once_however_it_is_sent(here, mark):
    file = here / "a.csv"
    for change in (
        lambda: write_file("a.csv", f"{mark}b\n"),
        lambda: edit_file("a.csv", f"{mark}a\n", f"{mark}b\n"),
        lambda: apply_patch(file_path="a.csv", original_content=f"{mark}a", updated_content="b"),
    ):
        file.write_bytes("\ufeffa\n".encode())
        change()
        assert file.read_bytes() == "\ufeffb\n".encode()


@pytest.mark.parametrize("text", ['{"v": 2}', '{"v": 2}\n', "a\r\nb", ""])
def test_a_new_file_holds_what_was_given(here, text):
    for name, make in {
        "e": lambda n: edit_file(n, "", text),
        "w": lambda n: write_file(n, text),
        "p": lambda n: apply_patch(file_path=n, updated_content=text),
    }.items():
        if text or name == "w":
            make(name)
            assert (here / name).read_bytes() == text.encode()


def test_json_without_a_last_line_end_stays_so(here):
    (here / "v.json").write_text('{"v": 1}', encoding="utf-8")
    edit_file("v.json", "1", "2")
    assert (here / "v.json").read_bytes() == b'{"v": 2}'


# -- read-only files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("apply_patch", {"patch": patch("*** Update File: fixed", "@@", "-a", "+b")}),
        ("apply_patch", {"patch": patch("*** Delete File: fixed")}),
        ("apply_patch", {"patch": patch("*** Add File: fixed", "+b")}),
        ("apply_patch", {"patch": patch("*** Update File: fixed", "*** Move to: moved")}),
        ("edit_file", {"path": "fixed", "old": "a", "new": "b"}),
        ("write_file", {"path": "fixed", "content": "b"}),
    ],
)
@pytest.mark.parametrize("mode", [0o444, 0o000], ids=["0444", "0000"])
def test_a_read_only_file_is_asked_about(here, tool, arguments, mode):
    (here / "fixed").write_text("a\n", encoding="utf-8")
    (here / "fixed").chmod(mode)
    asked = []

    def on_question(question):
        asked.append(json.dumps([question.reason, question.target]))
        return "deny"

    with Agent(tools=["coding", tool], cwd=here, on_question=on_question) as agent:
        assert not agent.call_sync(tool, arguments).success
    assert len(asked) == 1 and "read-only" in asked[0] and "fixed" in asked[0]
    (here / "fixed").chmod(0o644)
    assert (here / "fixed").read_text(encoding="utf-8") == "a\n"


# -- files that change while a question is open ----------------------------------------------------

WHOLE = [
    ("write_file", {"path": "target.txt", "content": "b\n"}),
    ("write_file", {"path": "link", "content": "b\n"}),
    ("write_file", {"path": "new.txt", "content": "b\n"}),
    ("apply_patch", {"patch": patch("*** Add File: target.txt", "+b")}),
    ("apply_patch", {"patch": patch("*** Delete File: target.txt")}),
    ("apply_patch", {"patch": patch("*** Update File: other.txt", "*** Move to: target.txt")}),
]


def answering(here, written, *decisions):
    """Return an agent whose person writes a file while the first question is open, and its
    questions."""
    asked, answers = [], iter(decisions)

    def on_question(question):
        if not asked:
            (here / written).write_text("a\ntyped meanwhile\n", encoding="utf-8")
        asked.append(question)
        return next(answers)

    tools = ["coding", "edit_file", "write_file"]
    return Agent(tools=tools, cwd=here, approval="untrusted", on_question=on_question), asked


@pytest.mark.parametrize(("tool", "arguments"), WHOLE)
def test_what_goes_whole_and_changed_since_the_question_is_asked_about_again(here, tool, arguments):
    (here / "other.txt").write_text("b\n", encoding="utf-8")
    written = "new.txt" if "new.txt" in str(arguments) else "target.txt"
    agent, asked = answering(here, written, "approve", "deny")
    with agent:
        assert not agent.call_sync(tool, arguments).success
    first, again = asked
    assert "changed since it was checked" in again.reason and again.reason != first.reason
    assert (here / written).read_text(encoding="utf-8") == "a\ntyped meanwhile\n"


def test_the_question_that_is_asked_again_shows_what_is_lost_now(here):
    agent, asked = answering(here, "target.txt", "approve", "approve")
    with agent:
        assert agent.call_sync(*WHOLE[0]).success
    assert ["-typed meanwhile" in question.arguments for question in asked] == [False, True]
    assert (here / "target.txt").read_text(encoding="utf-8") == "b\n"


def test_a_change_of_some_lines_keeps_what_was_written_elsewhere_and_is_not_asked_about_again(here):
    agent, asked = answering(here, "target.txt", "approve")
    with agent:
        assert agent.call_sync(
            "edit_file", {"path": "target.txt", "old": "a\n", "new": "b\n"}
        ).success
    assert len(asked) == 1
    assert (here / "target.txt").read_text(encoding="utf-8") == "b\ntyped meanwhile\n"


# -- one matcher -----------------------------------------------------------------------------------

TEXT = "def f():\n\u00a0\u00a0print(\u201chi\u201d)   \n    return 1 \u2013 2\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        (
            '  print("hi")',
            '  print("ho")',
            'def f():\n\u00a0\u00a0print("ho")\n    return 1 \u2013 2\n',
        ),
        (
            "return 1 - 2",
            "return 3",
            "def f():\n\u00a0\u00a0print(\u201chi\u201d)   \n    return 3\n",
        ),
        (
            'def f():\n  print("hi")\n',
            'def g():\n  print("hi")\n',
            "def g():\n\u00a0\u00a0print(\u201chi\u201d)   \n    return 1 \u2013 2\n",
        ),
        ("print(\u201chi\u201d)", "pass", "def f():\n\u00a0\u00a0pass   \n    return 1 \u2013 2\n"),
    ],
)
def test_invisible_differences_do_not_stop_an_edit(here, old, new, after):
    (here / "f.txt").write_text(TEXT, encoding="utf-8")
    result = edit_file("f.txt", old, new)
    assert (here / "f.txt").read_text(encoding="utf-8") == after
    if old not in TEXT:
        assert "applied by" in result.summary


@pytest.mark.parametrize(
    "edit",
    [
        lambda name, old: edit_file(name, old, "x"),
        lambda name, old: apply_patch(file_path=name, original_content=old, updated_content="x"),
    ],
)
def test_what_is_not_there_is_told_with_the_nearest_lines(here, edit):
    (here / "f.txt").write_text(TEXT, encoding="utf-8")
    with pytest.raises(RespondToModel, match="Nearest lines") as told:
        edit("f.txt", "return 1 + 2")
    assert "return 1" in str(told.value)


# -- padded markers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        " *** Begin Patch\n*** Update File: target.txt\n@@\n-a\n+b\n*** End Patch",
        "*** Begin Patch\n  *** Update File: target.txt\n@@\n-a\n+b\n*** End Patch",
        "*** Begin Patch\n*** Update File: target.txt\n@@\n-a\n+b\n *** End Patch",
        "\t*** Begin Patch \n *** Add File: n\n+x\n"
        "  *** Update File: target.txt\n-a\n+b\n*** End Patch\t",
        "*** Begin Patch\n *** Delete File: link\n"
        "  *** Update File: target.txt\n-a\n+b\n *** End Patch",
        "  *** Begin Patch\n  *** Update File: target.txt\n  @@\n  -a\n  +b\n  *** End Patch",
    ],
)
def test_padded_markers_are_taken(here, text):
    apply_patch(text)
    assert (here / "target.txt").read_text(encoding="utf-8") == "b\n"


def test_a_padded_marker_inside_a_chunk_is_a_line_of_the_file(here):
    (here / "doc.md").write_text("a\n*** Update File: x\nb\n", encoding="utf-8")
    apply_patch(patch("*** Update File: doc.md", " a", " *** Update File: x", "-b", "+c"))
    assert (here / "doc.md").read_text(encoding="utf-8") == "a\n*** Update File: x\nc\n"
