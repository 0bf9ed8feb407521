"""Floor 3: the loop; start reading at ``turn.py``."""
