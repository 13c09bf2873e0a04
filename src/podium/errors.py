"""The one exception that stands for a user's mistake: the command line prints its single line and exits with 2."""


class UserError(Exception):
    """Says what was given, what was needed and what to do, in one line."""
