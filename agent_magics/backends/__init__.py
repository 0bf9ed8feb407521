"""Floor 2: the outside world (files, processes, patches), ignorant of agents."""
