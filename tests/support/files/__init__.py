"""Programs and data for tests of file changes: random edits, interrupted patches, hostile files."""
