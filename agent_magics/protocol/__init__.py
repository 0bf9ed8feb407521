"""Floor 1: the nouns that every other floor speaks; no behaviour, no I/O, no threads."""
