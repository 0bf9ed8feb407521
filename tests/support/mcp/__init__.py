"""Servers and clients of the Model Context Protocol."""

from pathlib import Path

PROGRAMS = Path(__file__).parent  # the servers stand here as files to be run
