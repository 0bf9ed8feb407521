"""Drives JupyterLab in a browser, and looks at what pages and readers of Markdown show."""
