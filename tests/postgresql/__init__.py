"""Tests of the engine for PostgreSQL."""
