"""Tests of what pages of JupyterLab show; one browser for all of them, see conftest.py."""
