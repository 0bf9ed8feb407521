"""TOML and JSON files: parsing with line numbers, editing in place, trust by digest.

Read ``toml_places`` first.
"""
