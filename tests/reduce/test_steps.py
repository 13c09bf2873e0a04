"""What a device sends is what its neighbour puts in the same place."""

import pytest

from podium.reduce.colours import torus_routes
from podium.reduce.routes import ring_routes, slots
from podium.reduce.swing import swing_routes
from podium.reduce.woven import woven_routes


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("routes", [ring_routes, torus_routes, swing_routes, woven_routes])
def test_rows_arrive_where_they_were_taken_from(routes, lanes):
    for slot in slots(routes, 2, 4, lanes=lanes):
        for step in slot.steps:
            for source, to in step.pairs:
                assert step.receive[to] == step.send[source]
                assert step.received[to] == step.rows[source]
