"""``view_image``: a picture, made small enough for a model to look at.

It is always encoded anew: what else stands in an image file (where a photo was taken, say) is not
sent to anybody.
"""

import base64
import io
import os
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from agent_magics.backends import files
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.file_access import assess_read, place, refuse_unasked

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
        original: the same of the file.
        shown: the file's name.
        detail: how closely the model is asked to look.
    """

    data: bytes
    mime: str
    size: tuple[int, int]
    original: tuple[int, int]
    shown: str
    detail: Detail = "auto"

    def __repr__(self) -> str:
        width, height = self.original
        smaller = (
            "" if self.size == self.original else f", shown at {self.size[0]} x {self.size[1]}"
        )
        return f"{self.shown}: {width} x {height} pixels{smaller}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {self.mime: encoded, "text/plain": repr(self)}

    def to_output(self, budget: int) -> ToolOutput:
        """Return what the model reads and sees; the budget is one of text."""
        encoded = base64.b64encode(self.data).decode("ascii")
        image = InputImage(f"data:{self.mime};base64,{encoded}", self.detail)
        content = (InputText(repr(self)[:budget]), image)
        return ToolOutput(content, details={"path": self.shown}, value=self)


@tool(parallel=True, mutating=False, assess=assess_read)
def view_image(path: str, detail: Detail = "auto", *, ctx: ToolContext | None = None) -> Picture:
    """Look at an image file: PNG, JPEG, GIF (its first picture) or WebP.

    Args:
        path: the file; relative to the workspace, absolute, or starting with ~.
        detail: low is enough for what it shows in the large; otherwise leave it out.

    Returns:
        Called by hand: a `Picture`, which a notebook shows.

    Raises:
        RespondToModel: there is no such file, it is no such image, or too large a one.
    """
    resolved, shown = place(path, ctx)
    descriptor = files.open_regular(resolved, shown)
    with os.fdopen(descriptor, "rb") as file:
        where = files.opened_path(descriptor) or resolved
        status = os.fstat(descriptor)
        refuse_unasked(where, shown, ctx, status)
        if status.st_size > MOST_BYTES:
            raise RespondToModel(
                f"{shown} has {status.st_size >> 20} MiB; images of up to {MOST_BYTES >> 20} MiB "
                "are opened. Make a smaller one first."
            )
        data = file.read()
    return _encoded_anew(data, shown, detail)


def _encoded_anew(data: bytes, shown: str, detail: Detail) -> Picture:
    image, is_photo = _decoded(data, shown)
    original = image.size
    side = LOW_SIDE if detail == "low" else LONGEST_SIDE
    image.thumbnail((side, side), resample=_LANCZOS)
    encoded = io.BytesIO()
    if is_photo:
        image.convert("RGB").save(encoded, "JPEG", quality=_QUALITY)
    else:
        image.save(encoded, "PNG")
    mime = "image/jpeg" if is_photo else "image/png"
    return Picture(encoded.getvalue(), mime, image.size, original, shown, detail)


def _decoded(data: bytes, shown: str) -> tuple[Any, bool]:
    """Return the picture as Pillow has it, upright, and whether it is a photo."""
    try:
        from PIL import Image, ImageOps  # noqa: PLC0415 - an extra, and 50 ms
    except ImportError:
        raise RespondToModel(
            "Images cannot be opened here: Pillow is not installed. Tell the person that "
            "`pip install 'agent-magics[images]'` adds it."
        ) from None
    try:
        with warnings.catch_warnings():
            # Pillow warns of oddities, and of images that would take gigabytes when decoded.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image: Any = Image.open(io.BytesIO(data), formats=_FORMATS)
            upright = ImageOps.exif_transpose(image)  # as the camera was held
            return _in_plain_colours(upright), image.format == "JPEG"
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise RespondToModel(
            f"{shown} has over {(Image.MAX_IMAGE_PIXELS or 0) // 1_000_000} million pixels, which "
            "is too large to open; make a smaller one first, or cut out the part that matters."
        ) from None
    except Image.UnidentifiedImageError:
        raise RespondToModel(f"{shown} is no PNG, JPEG, GIF or WebP image.") from None
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for damaged ones
        raise RespondToModel(f"{shown} is damaged, or no image: {error}.") from None


def _in_plain_colours(image: Any) -> Any:
    """Return the picture in red, green and blue, with its transparency where it has any."""
    if image.mode in ("RGB", "RGBA", "L"):
        return image.copy()
    has_alpha = "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa")
    return image.convert("RGBA" if has_alpha else "RGB")
