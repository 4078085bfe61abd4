"""Adds up what comes from a recording that grows: since its start, and of the last seconds."""
