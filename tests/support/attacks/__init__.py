"""The table of attacks on the sandbox, and the programs that run them."""
