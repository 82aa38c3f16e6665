"""The locks that users take: ports of Curator's recipes, and their operations."""
