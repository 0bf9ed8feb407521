"""Runs commands in the sandbox: confined functions, everyday scripts, soaks, killed kernels."""

from pathlib import Path

PROGRAMS = Path(__file__).parent  # what is run as a process of its own stands here
