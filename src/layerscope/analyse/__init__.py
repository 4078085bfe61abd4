"""Tables in, results out. Never prints, never draws."""
