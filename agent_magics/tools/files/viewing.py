"""``view_image``: reads an image and scales it down for a model.

The image is always encoded anew, so that metadata of the file (such as a photo's place) is not
sent.
"""

import base64
import io
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.renderers import in_eight_bits
from agent_magics.dispatch.results.stored import is_handle
from agent_magics.dispatch.results.values import bases_of, describe_value, made_by, type_name
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.files.access import assess_read, opened

Detail = Literal["auto", "low", "high", "original"]

LONGEST_SIDE = 2_048  # pixels; providers make larger ones smaller themselves
LOW_SIDE = 512
MOST_BYTES = 64 * 1024 * 1024
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_LANCZOS = 1  # Pillow's Resampling.LANCZOS, the sharpest
_QUALITY = 85  # of a photo; its small errors are not seen at this size


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file as a model sees it.

    Attributes:
        data: the bytes, encoded anew.
        mime: "image/png" or "image/jpeg".
        size: (width, height) in pixels, of `data`.
        original: (width, height) in pixels, of the file.
        shown: the file's name for messages.
        detail: the level of detail requested of the model.
        is_first: whether the file has more images, as an animation does.
    """

    data: bytes
    mime: str
    size: tuple[int, int]
    original: tuple[int, int]
    shown: str
    detail: Detail = "auto"
    is_first: bool = False

    def __repr__(self) -> str:
        parts = [f"{self.shown}: {self.original[0]} x {self.original[1]} pixels"]
        if self.size != self.original:
            parts.append(f"shown at {self.size[0]} x {self.size[1]}")
        if self.is_first:
            parts.append("the first of several pictures")
        return ", ".join(parts)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {self.mime: encoded, "text/plain": repr(self)}

    def to_output(self, budget: int) -> ToolOutput:
        """Return the image with a line of text; `budget` limits the text, in characters."""
        encoded = base64.b64encode(self.data).decode("ascii")
        image = InputImage(f"data:{self.mime};base64,{encoded}", self.detail)
        content = (InputText(repr(self)[:budget]), image)
        return ToolOutput(content, details={"path": self.shown}, value=self)


@tool(parallel=True, mutating=False, assess=assess_read)
def view_image(path: str, detail: Detail = "auto", *, ctx: ToolContext | None = None) -> Picture:
    """Look at a PNG, JPEG, GIF (its first picture) or WebP file, or a picture in the kernel.

    Args:
        path: a file, a kept result such as @r1, or a variable: a figure, image or array of pixels.

    Returns:
        Called by hand: a `Picture`, which a notebook shows.

    Raises:
        RespondToModel: there is no such file, it is no such image, or too large a one.
    """
    found, value = _in_kernel(path, ctx)
    if found:
        return _encoded_anew(_picture_of(value, path), path, detail)
    with opened(path, ctx) as (descriptor, _, shown):
        size = os.fstat(descriptor).st_size
        if size > MOST_BYTES:
            raise RespondToModel(
                f"{shown} has {size >> 20} MiB; images of up to {MOST_BYTES >> 20} MiB "
                "are opened. Make a smaller one first."
            )
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
    return _encoded_anew(_decoded(data, shown), shown, detail)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An image decoded by Pillow, upright and in RGB, RGBA or grey."""

    image: Any
    is_photo: bool = False
    is_first: bool = False


def _encoded_anew(decoded: _Decoded, shown: str, detail: Detail) -> Picture:
    image = decoded.image
    original = image.size
    side = LOW_SIDE if detail == "low" else LONGEST_SIDE
    image.thumbnail((side, side), resample=_LANCZOS)
    encoded = io.BytesIO()
    if decoded.is_photo:
        image.convert("RGB").save(encoded, "JPEG", quality=_QUALITY)
    else:
        image.save(encoded, "PNG")
    mime = "image/jpeg" if decoded.is_photo else "image/png"
    data = encoded.getvalue()
    return Picture(data, mime, image.size, original, shown, detail, decoded.is_first)


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, and 50 ms
    except ImportError:
        raise RespondToModel(
            "Images cannot be opened here: Pillow is not installed. Tell the person that "
            "`pip install 'agent-magics[images]'` adds it."
        ) from None
    return Image


def _decoded(data: bytes, shown: str) -> _Decoded:
    pillow = _pillow()
    from PIL import ImageOps  # noqa: PLC0415 - see _pillow

    try:
        with warnings.catch_warnings():
            # Pillow warns of oddities, and of images that would take gigabytes when decoded.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            image: Any = pillow.open(io.BytesIO(data), formats=_FORMATS)
            is_first = bool(getattr(image, "is_animated", False))
            upright = ImageOps.exif_transpose(image)  # as the camera was held
            return _Decoded(_in_plain_colours(upright), image.format == "JPEG", is_first)
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError):
        raise RespondToModel(_too_many_pixels(shown, pillow)) from None
    except pillow.UnidentifiedImageError:
        raise RespondToModel(f"{shown} is no PNG, JPEG, GIF or WebP image.") from None
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for damaged ones
        raise RespondToModel(f"{shown} is damaged, or no image: {clause(error)}.") from None


def _too_many_pixels(shown: str, pillow: Any) -> str:
    return (
        f"{shown} has over {(pillow.MAX_IMAGE_PIXELS or 0) // 1_000_000} million pixels, which "
        "is too large to open; make a smaller one first, or cut out the part that matters."
    )


# -- pictures in the kernel ------------------------------------------------------------------------


def _in_kernel(path: str, ctx: ToolContext | None) -> tuple[bool, Any]:
    """Return (True, value) where `path` names a stored result or a variable and no file."""
    if not isinstance(path, str):  # a call by hand may give a `Path`
        return False, None
    if is_handle(path) and ctx is not None:
        return True, ctx.handles.value_of(path)
    if not path.isidentifier() or ((Path.cwd() if ctx is None else ctx.cwd) / path).exists():
        return False, None
    namespace = _namespace(ctx)
    return path in namespace, namespace.get(path)


def _namespace(ctx: ToolContext | None) -> Mapping[str, Any]:
    if ctx is None:
        return vars(sys.modules["__main__"])
    return {} if ctx.turn.live_kernel is None else ctx.turn.live_kernel.namespace


def _picture_of(value: Any, shown: str) -> _Decoded:
    """Convert a value (figure, image or array) to an image.

    Raises:
        RespondToModel: it is no image.
    """
    known = set(map(made_by, bases_of(type(value))))
    try:
        if ("matplotlib", "Axes") in known:
            return _drawn(value.get_figure(), shown)
        if ("matplotlib", "Figure") in known:
            return _drawn(value, shown)
        if ("PIL", "Image") in known:
            return _Decoded(_in_plain_colours(value))
        if ("numpy", "ndarray") in known:
            return _from_pixels(value, shown)
        if ("IPython", "Image") in known and isinstance(value.data, bytes):
            return _decoded(value.data, shown)
    except (OSError, ValueError, TypeError, AttributeError) as error:  # the library's own failure
        raise RespondToModel(
            f"{shown} ({type_name(value)}) cannot be shown: {clause(error)}."
        ) from None
    if isinstance(value, bytes):
        return _decoded(value, shown)
    raise RespondToModel(
        f"{shown} is no picture ({describe_value(value)}); figures of matplotlib, images of Pillow "
        "and arrays of pixels are."
    )


def _drawn(figure: Any, shown: str) -> _Decoded:
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="png", dpi=min(figure.dpi, LONGEST_SIDE / max(figure.get_size_inches()))
    )
    return _decoded(buffer.getvalue(), shown)


def _from_pixels(array: Any, shown: str) -> _Decoded:
    """Convert an array of shape (height, width), or with 3 or 4 channels, to an image."""
    pillow = _pillow()
    if (
        array.ndim not in (2, 3)
        or (array.ndim == 3 and array.shape[2] not in (3, 4))
        or not array.size
    ):
        raise RespondToModel(
            f"{shown} is no picture: an array of shape {array.shape}, not of height x width, or "
            "that x 3 or 4 colours."
        )
    if array.shape[0] * array.shape[1] > (pillow.MAX_IMAGE_PIXELS or sys.maxsize):
        raise RespondToModel(_too_many_pixels(shown, pillow))
    kind = array.dtype.kind
    if kind == "b" or (kind == "f" and array.min() >= 0 and array.max() <= 1):
        array = (array * 255).astype("uint8")
    elif kind not in "iu" or array.min() < 0 or array.max() > 255:
        raise RespondToModel(
            f"{shown} is no picture: its values are neither 0 to 255 nor, as floats, 0 to 1."
        )
    return _Decoded(_in_plain_colours(pillow.fromarray(array.astype("uint8"))))


def _in_plain_colours(image: Any) -> Any:
    """Convert an image to RGB, or to RGBA where it has transparency."""
    image = in_eight_bits(image)
    if image.mode in ("RGB", "RGBA", "L"):
        return image.copy()
    has_alpha = "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa")
    return image.convert("RGBA" if has_alpha else "RGB")
