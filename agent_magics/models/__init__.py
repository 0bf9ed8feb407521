"""Floor 2: the doors to models; the only room that imports ``openai``."""
