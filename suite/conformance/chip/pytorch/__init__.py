"""The chip as torch and our driver reach it."""
