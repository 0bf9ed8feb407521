"""Model servers: our own with scripted answers, and those of others."""
