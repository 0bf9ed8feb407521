"""Running commands: processes, their output, their environment, their end."""
