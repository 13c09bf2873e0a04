import pytest


@pytest.fixture(scope="session", autouse=True)
def _shared(shared_programs: None) -> None:
    """Most runs here are of one recipe."""
