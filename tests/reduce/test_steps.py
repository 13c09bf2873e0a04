"""What a device sends is what its neighbour puts in the same place."""

import pytest

from podium.reduce.routes import ring_routes, slots, torus_routes


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("routes", [ring_routes, torus_routes])
def test_rows_arrive_where_they_were_taken_from(routes, lanes):
    for slot in slots(routes, 3, 4, lanes=lanes):
        for step in slot.steps:
            assert sorted(source for source, _ in step.pairs) == sorted(to for _, to in step.pairs)
            for source, to in step.pairs:
                assert step.receive[to] == step.send[source]
