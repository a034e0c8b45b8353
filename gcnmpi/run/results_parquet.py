"""Results of inference in Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gcnmpi.run.results import Results
from partition.records import atomic_file


def write_parquet(results: Results, path: Path) -> None:
    """A column ``id``, of numbers where vertices have no ids, and one for each of the values."""
    text = results.ids is not None and results.ids.dtype.kind == "U"
    of_names = results.names is not None
    number = pa.string() if of_names else pa.from_numpy_dtype(results.values.dtype)
    names = ["id", *results.columns]
    kinds = [pa.string() if text else pa.int64(), *[number] * len(results.columns)]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    with atomic_file(path) as file, pq.ParquetWriter(file, schema) as out:
        for ids, rows in results.slices():
            first = pa.array(ids.tolist() if text else ids, kinds[0])
            columns = [pa.array(column.tolist() if of_names else column) for column in rows.T]
            out.write_table(pa.Table.from_arrays([first, *columns], schema=schema))
