"""A small language server as a program, which can misbehave, and a project that it works in."""
