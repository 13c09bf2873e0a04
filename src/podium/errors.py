"""The one exception that stands for a user's mistake. The command line prints its single line and exits with 2; everything else is a bug."""


class UserError(Exception):
    """Says what was given, what was needed and what to do, in one line."""
