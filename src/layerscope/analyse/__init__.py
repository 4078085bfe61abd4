"""Columns in, tables out. Never prints, never draws."""
