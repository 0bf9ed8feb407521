"""Floor 3: events in, marks out."""
