import base64
import builtins
import contextlib
import io
import struct
import zlib

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import figure as figures
from PIL import Image

from agent_magics.approval.actions import ActionKind
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.viewing import LONGEST_SIDE, view_image
from tests.support.contexts import in_turn, make_context

RED = (255, 0, 0)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def decoded(picture):
    return Image.open(io.BytesIO(picture.data))


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.gif", "a.webp"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_each_format_and_mode_is_shown(work, name, mode):
    Image.new("RGB", (30, 20), RED).convert(mode).convert(
        "L" if name == "a.jpg" and mode in "P1" else "RGB" if name == "a.webp" else mode
    ).save(name)
    picture = view_image(name)
    assert repr(picture) == f"{name}: 30 x 20 pixels"
    assert decoded(picture).size == (30, 20)
    assert picture.mime == ("image/jpeg" if name == "a.jpg" else "image/png")


def test_colours_and_transparency_stay(work):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save("c.jpg")
    red, green, blue = decoded(view_image("c.jpg")).getpixel((4, 4))
    assert red > 200 and green < 60 and blue < 60
    Image.new("RGBA", (8, 8), (*RED, 10)).save("t.png")
    assert decoded(view_image("t.png")).getpixel((0, 0)) == (*RED, 10)
    Image.new("P", (8, 8)).save("p.png", transparency=0)
    assert decoded(view_image("p.png")).getpixel((0, 0))[3] == 0


@pytest.mark.parametrize(("kind", "step"), [("uint8", 1), ("uint16", 257)])
def test_shades_of_grey_stay(work, kind, step):
    shades = numpy.arange(256) * step
    Image.fromarray(shades.reshape(1, 256).astype(kind)).save("grey.png")
    shown = decoded(view_image("grey.png")).convert("L")
    assert [*shown.tobytes()] == [*range(256)]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("detail", "size"), [("auto", (2048, 1024)), ("high", (2048, 1024)), ("low", (512, 256))]
)
def test_large_ones_become_smaller(work, detail, size):
    Image.new("RGB", (4096, 2048)).save("big.png")
    picture = view_image("big.png", detail)
    assert decoded(picture).size == picture.size == size
    assert repr(picture) == f"big.png: 4096 x 2048 pixels, shown at {size[0]} x {size[1]}"


def test_it_is_turned_as_the_camera_was_held_and_nothing_else_is_sent(work):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: a quarter turn
    exif[0x010F] = "secret maker"
    Image.new("RGB", (40, 20)).save("photo.jpg", exif=exif)
    picture = view_image("photo.jpg")
    assert picture.size == picture.original == (20, 40)
    assert b"secret" not in picture.data


def test_a_model_reads_a_line_and_sees_the_picture(work):
    Image.new("RGB", (3, 2), RED).save("a.png")
    context = make_context(work)
    text, image = view_image("a.png", "low", ctx=context).to_output(1000).content
    assert text.text == "a.png: 3 x 2 pixels"
    head, _, data = image.image_url.partition(",")
    assert (head, image.detail) == ("data:image/png;base64", "low")
    assert Image.open(io.BytesIO(base64.b64decode(data))).getpixel((0, 0)) == RED


def test_a_notebook_shows_it(work):
    Image.new("RGB", (3, 2)).save("a.png")
    bundle = view_image("a.png")._repr_mimebundle_()
    assert sorted(bundle) == ["image/png", "text/plain"]


def header_of(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (header_of(30_000, 30_000), "a.png has over 89 million pixels"),
        (header_of(10_000, 10_000), "a.png has over 89 million pixels"),
        (b"hello", "a.png is no PNG, JPEG, GIF or WebP image"),
        (b"", "a.png is no PNG"),
        (b"BM" + bytes(100), "a.png is no PNG"),  # a bitmap, which is none of the four
        (header_of(10, 10), "a.png is damaged, or no image"),
    ],
)
def test_what_cannot_be_opened_is_refused(work, data, why):
    (work / "a.png").write_bytes(data)
    with pytest.raises(RespondToModel, match=why):
        view_image("a.png")


def test_a_huge_file_is_refused_unread(work):
    with open("a.png", "wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(RespondToModel, match="has 10240 MiB"):
        view_image("a.png")


def test_other_refusals_are_those_of_every_file(work, monkeypatch):
    for path, why in (("none.png", "There is no none.png"), (".", "is a folder")):
        with pytest.raises(RespondToModel, match=why):
            view_image(path)
    monkeypatch.setenv("HOME", str(work))
    (work / ".ssh").mkdir()
    (action,) = view_image.tool_options.assess({"path": "~/.ssh/id.png"}, make_context(work))
    assert action.kind is ActionKind.READ_DENIED


def test_without_pillow_it_says_how_to_get_it(work, monkeypatch):
    Image.new("RGB", (3, 2)).save("a.png")
    load = builtins.__import__

    def refuse(name, *more):
        if name == "PIL":
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RespondToModel, match=r"pip install 'agent-magics\[images\]'"):
        view_image("a.png")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]), st.data())
def test_damaged_images_are_shown_or_refused(tmp_path_factory, kind, data):
    whole = io.BytesIO()
    Image.radial_gradient("L").resize((16, 16)).save(whole, kind)
    damaged = bytearray(whole.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "a"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    with contextlib.suppress(RespondToModel):
        assert max(view_image(str(path)).size) <= LONGEST_SIDE


# -- pictures in the kernel ------------------------------------------------------------------------


class Kernel:
    """A namespace, as a live kernel lends it."""

    def __init__(self, **namespace):
        self.namespace = namespace


def seen(work, name, **namespace):
    context = in_turn(make_context(work), live_kernel=Kernel(**namespace))
    return view_image(name, ctx=context)


def test_a_variable_is_shown(work):
    picture = seen(work, "photo", photo=Image.new("RGB", (30, 20), RED))
    assert (repr(picture), decoded(picture).getpixel((0, 0))) == ("photo: 30 x 20 pixels", RED)
    for array, wanted in (
        (numpy.zeros((20, 30)), (30, 20)),
        (numpy.ones((20, 30, 3)), (30, 20)),
        (numpy.full((20, 30, 4), 200, dtype="uint8"), (30, 20)),
        (numpy.ones((20, 30), dtype=bool), (30, 20)),
    ):
        assert seen(work, "pixels", pixels=array).size == wanted


def test_a_figure_is_drawn(work):
    figure = figures.Figure(figsize=(4, 3), dpi=50)
    axes = figure.subplots()
    assert seen(work, "fig", fig=figure).size == (200, 150)
    assert seen(work, "ax", ax=axes).size == (200, 150)


def test_a_kept_result_is_shown(work):
    context = make_context(work)
    name = context.handles.keep_value(Image.new("RGB", (3, 2)))
    assert repr(view_image(name, ctx=context)) == f"{name}: 3 x 2 pixels"
    with pytest.raises(RespondToModel, match="@r99"):
        view_image("@r99", ctx=context)
    text = context.handles.keep("plain text")
    with pytest.raises(RespondToModel, match=f"{text} is no picture"):
        view_image(text, ctx=context)


def test_a_file_comes_before_a_variable(work):
    Image.new("RGB", (3, 2)).save("photo", "PNG")
    assert seen(work, "photo", photo=Image.new("RGB", (30, 20))).size == (3, 2)


def test_what_is_no_picture_says_what_it_is(work):
    for value, why in (
        (5, "n is no picture"),
        (numpy.zeros(5), r"array of shape \(5,\)"),
        (numpy.full((2, 2), 300), "neither 0 to 255"),
        (numpy.broadcast_to(numpy.uint8(0), (30_000, 30_000)), "over 89 million pixels"),
    ):
        with pytest.raises(RespondToModel, match=why):
            seen(work, "n", n=value)
    with pytest.raises(RespondToModel, match="There is no other"):
        seen(work, "other", n=5)


@pytest.mark.parametrize("kind", ["gif", "webp", "png"])
def test_of_an_animation_the_first_picture_is_shown_and_said_to_be(work, kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, (0, 0, 255))]
    frames[0].save(f"a.{kind}", save_all=True, append_images=frames[1:])
    picture = view_image(f"a.{kind}")
    assert repr(picture) == f"a.{kind}: 8 x 8 pixels, the first of several pictures"
    red, _, blue, *_ = decoded(picture).convert("RGB").getpixel((4, 4))
    assert red > blue
