"""The corpora of command lines and of signatures, as tests read them."""
