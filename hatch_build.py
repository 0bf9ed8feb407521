"""Builds the JupyterLab extension into the wheel where Node is at hand; never fails an install."""

import os
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


class LabextensionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's custom hook: build if that is possible, ship what has been built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the built extension to the wheel, after trying to build it.

        `AGENT_MAGICS_LABEXTENSION=skip` leaves it out: `make` builds and links it by itself.

        Args:
            version: "standard" or "editable"; both install what is shared.
            build_data: hatchling's, of which `shared_data` is extended.
        """
        if self.target_name != "wheel" or os.environ.get("AGENT_MAGICS_LABEXTENSION") == "skip":
            return
        root = Path(self.root)
        self._build(root)
        if (root / BUILT / "package.json").is_file():
            build_data["shared_data"][str(root / BUILT)] = SHARED
            # With this JupyterLab tells the person how to get rid of the extension.
            told = root / "labextension" / "install.json"
            build_data["shared_data"][str(told)] = f"{SHARED}/install.json"

    def _build(self, root: Path) -> None:
        if (root / BUILT / "package.json").is_file():
            return
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            self._say("Node.js was not found")
            return
        source = root / "labextension"
        try:
            for arguments in (INSTALL, ["run", "build"]):
                subprocess.run(
                    [npm, *arguments],
                    cwd=source,
                    check=True,
                    timeout=SECONDS,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except (OSError, subprocess.SubprocessError) as error:
            # Half a build would be taken for a whole one the next time.
            shutil.rmtree(root / BUILT, ignore_errors=True)
            reason = str(error).splitlines()[0]
            self._say(f"{reason} (to see why: cd labextension && npm ci && npm run build)")

    def _say(self, reason: str) -> None:
        self.app.display_warning(
            f"{NAME}: JupyterLab extension not built: {reason}; everything else works."
        )
