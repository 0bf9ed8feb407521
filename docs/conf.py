"""Configures Sphinx for this documentation: MyST pages, one per subject."""

from agent_magics import _version

project = "agent-magics"
author = "The agent-magics developers"
project_copyright = "2026, The agent-magics developers"
release = version = _version.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"agent-magics {release}"
