"""Drives a notebook kernel: a front end for it, and the cells that set it up."""
