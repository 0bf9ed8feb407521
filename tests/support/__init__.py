"""Shared by tests: drivers of kernels, pages and sandboxes, and servers to connect to."""
