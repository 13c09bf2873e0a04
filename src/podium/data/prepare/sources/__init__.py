"""The kinds of data `podium prepare` reads: a folder of class folders, a tar of one, WebDataset tars,
TFRecords and Hugging Face Parquet. `find` lists the files of a source, `scan_folder` and `scan_archive` turn
them into `rows`: where the bytes of each image lie, and its label. From there on every source looks the same;
nothing here looks at a pixel."""

from podium.data.prepare.sources.archive import Scan, scan_archive
from podium.data.prepare.sources.find import Found, SourceFile, find
from podium.data.prepare.sources.folder import scan_folder
from podium.data.prepare.sources.rows import gather, number_classes

__all__ = ["Found", "Scan", "SourceFile", "find", "gather", "number_classes", "scan_archive", "scan_folder"]
