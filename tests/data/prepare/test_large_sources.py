"""Many images cost as much each as few do: counted in bytes that Arrow allocates, not in seconds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from podium.data.prepare.layout import assign_splits, lay_out
from podium.data.prepare.sources.rows import SCHEMA, coded, gather, number_classes
from podium.data.prepare.transfer import Transfer

PER_ARCHIVE = 100


def archives(count):
    """Tables as scans of `count` archives give them, each with a path and a few classes of its own."""
    for number in range(count):
        names = [f"n{(number + i) % 50:08d}/{number:08d}_{i}.JPEG" for i in range(PER_ARCHIVE)]
        columns = {
            "path": [f"/data/part-{number:05d}.tar"] * PER_ARCHIVE,
            "offset": [512 * i for i in range(PER_ARCHIVE)],
            "bytes": [400] * PER_ARCHIVE,
            "name": names,
            "split": [None] * PER_ARCHIVE,
            "number": [None] * PER_ARCHIVE,
            "class_name": [name.split("/")[0] for name in names],
            "refused": [None] * PER_ARCHIVE,
        }
        plain = pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA])
        table = pa.table(columns, plain)
        yield pa.table([c.dictionary_encode() if pa.types.is_string(c.type) else c for c in table.columns], SCHEMA)


def laid_out(count):
    rows, _ = assign_splits(gather(list(archives(count))), 0.1, seed=0)
    return rows, lay_out(rows, seed=0), number_classes(rows, (), False)[1]


def allocated(work):
    """The most bytes that Arrow held at once for `work`."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        work()
    finally:
        pa.set_memory_pool(before)
    return pool.max_memory()


@pytest.mark.parametrize("count", [20, 2000])
def test_listing_a_shard_costs_its_rows_whatever_the_archives(count):
    rows, tasks, labels = laid_out(count)
    transfer = Transfer.__new__(Transfer)
    transfer._rows = rows.append_column("label", pa.array(labels))
    shard = tasks[0].rows[:1000]
    listed: list[Any] = []
    held = allocated(lambda: listed.extend(transfer._listed(shard)))
    names = [row["name"] for row in listed]
    assert names == rows["name"].take(shard).to_pylist()
    assert [row["path"] for row in listed] == [f"/data/part-{name.split('/')[1][3:8]}.tar" for name in names]
    assert held < 400 * len(shard)  # with a table in pieces: 80 bytes of every image of the source


def test_gathered_columns_are_in_one_piece_and_say_what_the_archives_said():
    tables = list(archives(30))
    rows = gather(tables)
    assert {column.num_chunks for column in rows.columns} == {1}
    assert rows.to_pylist() == [row for table in tables for row in table.to_pylist()]


def test_names_of_more_than_two_gigabytes_would_fit():
    assert SCHEMA.field("name").type == pa.large_string()


def test_codes_are_the_texts():
    texts = ["b", None, "a", "b"]
    column = pa.chunked_array([pa.array(texts[:2], pa.string()), pa.array(texts[2:], pa.string())])
    for given in (column, column.dictionary_encode()):
        found = coded(given)
        assert [found.texts[c] if c >= 0 else None for c in found.codes] == texts
        assert found.used() == {"a", "b"}
        assert found.used(np.array([True, True, False, False])) == {"b"}
