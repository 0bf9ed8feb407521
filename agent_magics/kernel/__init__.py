"""Floor 5: the only place that knows IPython."""
