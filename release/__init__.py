"""Builds what is released, and tries it as a user would."""
