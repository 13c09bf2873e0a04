"""A sweep's picture and page: well-formed, complete and without a link to any network."""

import json
import re
from xml.etree import ElementTree

import pytest

from podium.errors import UserError
from podium.plan import page


def _rows(key: str) -> list[dict]:
    return [
        {
            "topology": f"v3:{side}x{side}",
            "chips": side * side if key == "chips" else 64,
            "batch_global": 32768 if key == "chips" else 1024 * side,
            "batch_per_core": 16,
            "images_per_second": 1000.0 * side * side * 0.9**side,
            "efficiency": 0.9**side,
            "communication_share": 0.02 * side,
            "train_minutes": 1000.0 / side,
            "memory_bytes_per_core": 2**30,
            "fits": side < 8,
            "limit": "input" if side < 8 else "compute",
            "compute_origin": "compiled",
        }
        for side in (4, 8, 16)
    ]


@pytest.mark.parametrize("key", ["chips", "batch_global"])
def test_the_picture_has_a_dot_for_every_row_inside_every_panel(key):
    picture = ElementTree.fromstring(page.draw(_rows(key)))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    dots = picture.findall(".//{*}circle")
    assert len(dots) == 4 * 3
    assert all(0 < float(d.attrib["cx"]) < width / 2 and 0 < float(d.attrib["cy"]) < height / 2 for d in dots)


def test_the_page_needs_no_network_and_names_what_does_not_fit(tmp_path):
    files = page.write(_rows("chips"), tmp_path, title="a <title>", command="podium plan --topology v3:4x4,v3:8x8")
    text = (tmp_path / "sweep.html").read_text()
    assert {file.name for file in files} == {"sweep.html", "sweep.svg", "sweep.json"}
    body = text.partition("<body>")[2].partition("<script")[0]
    assert not re.search(r"(src|href)\s*=", body)
    assert "default-src 'none'" in text  # whatever a script might try
    assert "modelled" in (tmp_path / "sweep.svg").read_text()
    assert text.count("a &lt;title&gt;") == 2
    assert text.count("(too much)") == 2
    assert (text.count(">input</td>"), text.count(">compute</td>")) == (1, 2)
    assert len(json.loads((tmp_path / "sweep.json").read_text())["rows"]) == 3


@pytest.mark.parametrize("out", ["taken", "taken/deeper"])
def test_a_place_that_is_no_directory_is_told_before_the_sweep(tmp_path, out):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match=f"{tmp_path / out} could not be written: .*; give another --out"):
        page.make_directory(tmp_path / out)


def test_the_directory_is_made_and_left_empty(tmp_path):
    page.make_directory(tmp_path / "new" / "sweep")
    page.make_directory(tmp_path / "new" / "sweep")
    assert list((tmp_path / "new" / "sweep").iterdir()) == []


def test_what_stands_in_the_way_of_a_file_is_one_line(tmp_path):
    (tmp_path / "sweep.html").mkdir()
    with pytest.raises(UserError, match="could not be written: Is a directory; give another --out"):
        page.write(_rows("chips"), tmp_path, title="title", command="command")


def test_what_lowers_efficiency_is_said_in_sentences():
    rows = _rows("chips")
    for row, compute, summation in zip(rows, (10.0, 10.0, 12.0), (1.0, 2.0, 8.0), strict=True):
        row["parts"] = [
            {"name": "compute", "seconds": compute / row["chips"]},
            {"name": "gradient summation", "seconds": summation / row["chips"]},
        ]
    told = page.explain(rows)
    assert told[0].startswith("A chip of v3:16x16 does 19% of the work of one of v3:4x4")
    assert told[1].startswith("78% of the loss is gradient summation")
    assert told[2].startswith("22% of the loss is compute: small batches")
    assert page.explain([{**rows[0], "efficiency": 1.0}]) == [
        "Nothing: a chip of v3:4x4 does as much as one of v3:4x4."
    ]
