"""A flash sale: a small shop that shows what distlock is for."""
