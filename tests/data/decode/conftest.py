from types import ModuleType

import pytest
from tests.support.jpegs import BACKENDS

from podium.data import decode


@pytest.fixture(params=BACKENDS)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(decode, "_chosen", lambda: (request.param, "the test wants it"))
    return decode
