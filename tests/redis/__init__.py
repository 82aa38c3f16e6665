"""Tests of the engine for Redis."""
