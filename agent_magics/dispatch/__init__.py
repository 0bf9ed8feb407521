"""Floor 2: the machinery between a model's call and a tool's answer."""
