"""The pictures of a workspace that a prompt names are sent with it, and no others."""

from pathlib import Path

import pytest
from PIL import Image

from agent_magics.kernel.cell.request.pictures import missing_pictures, read_pictures
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.tables.files import any_path


def make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), "red").save(path)


def test_pictures_of_the_workspace_are_sent_once(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    make(workspace / "pasted/a.png")
    make(workspace / "my plots/b.jpg")
    make(tmp_path / "outside.png")
    (workspace / "link.png").symlink_to(tmp_path / "outside.png")
    text = (
        "See ![](pasted/a.png), ![again](pasted/a.png) and ![b](<my plots/b.jpg>), not "
        "![](../outside.png) ![](link.png) ![](gone.png) ![](https://example.org/a.png)"
    )
    urls = [picture.image_url[:16] for picture in read_pictures(text, workspace, any_path)]
    assert urls == ["data:image/png;b", "data:image/jpeg;"]
    assert missing_pictures(text, workspace) == ["gone.png"]


def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture", encoding="utf-8")
    with pytest.raises(
        FatalError, match=r"A picture of the prompt cannot be sent: .*a.png is no PNG"
    ):
        read_pictures("![](a.png)", tmp_path, any_path)
    for number in range(11):
        make(tmp_path / f"{number}.png")
    with pytest.raises(FatalError, match="names 11 pictures; send at most 10"):
        read_pictures("".join(f"![]({number}.png)" for number in range(11)), tmp_path, any_path)


@pytest.mark.parametrize(
    "name", ["x" * 300 + ".png", "x/" * 3000 + ".png", "a\0b.png", "\ud800.png", "loop.png"]
)
def test_names_that_no_file_has_stay_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")
    assert read_pictures(f"![]({name}) ![](<{name}>)", tmp_path, any_path) == ()


def test_a_picture_that_is_kept_from_the_model_is_not_sent(tmp_path: Path) -> None:
    make(tmp_path / "a.png")
    with pytest.raises(FatalError, match=r"a\.png of the prompt cannot be sent: a rule"):
        read_pictures("![](a.png)", tmp_path, lambda path: "a rule" if "a.png" in path else "")
