"""Predictions as a table: image, class_1, probability_1, class_2, … in a CSV or Parquet file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyarrow import csv, parquet

from podium.host.files import replacing, reporting
from podium.train.classify import Classified


def write_table(file: Path, format: Literal["csv", "parquet"], results: Sequence[Classified], *, top: int) -> None:
    columns: dict[str, pa.Array] = {"image": pa.array([str(r.image) for r in results], pa.string())}
    guesses = max((len(r.guesses) for r in results), default=top)
    for k in range(min(top, guesses)):
        columns[f"class_{k + 1}"] = pa.array([r.guesses[k].name for r in results], pa.string())
        columns[f"probability_{k + 1}"] = pa.array([r.guesses[k].probability for r in results], pa.float32())
    with reporting(file, "choose a different file"), replacing(file) as temporary:
        write = csv.write_csv if format == "csv" else parquet.write_table
        write(pa.table(columns), temporary)
