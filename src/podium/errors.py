"""The exceptions that the command line has an answer for: a user's mistake (one line, exit code 2), and a run that was
stopped early in good order (exit code 75)."""

EXIT_SOME_FAILED = 1  # the rest was done: some images could not be used
EXIT_MISTAKE = 2
EXIT_STOPPED = 75  # sysexits' EX_TEMPFAIL: not finished; the same command resumes
EXIT_HUNG = 70  # sysexits' EX_SOFTWARE: a process was lost or nothing moved; the same command resumes


class UserError(Exception):
    """Says what was given, what was needed and what to do, in one line."""


class Stopped(Exception):
    """The run ended early, after a checkpoint; the same command resumes from there."""

    def __init__(self, reason: str, step: int, run: str) -> None:
        saved = f"stopped after step {step}, which is saved"
        super().__init__(f"{reason}: {saved}; the same command with --run {run} resumes")
        self.reason, self.step, self.run = reason, step, run
