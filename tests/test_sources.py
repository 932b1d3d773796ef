"""Named datasets: where their files are found, how they are read, and how they are downloaded."""

from __future__ import annotations

import gzip
import hashlib
import inspect
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from itocast import Data, Forecaster, datasets
from itocast.data.download import DownloadError
from itocast.data.files import digest
from itocast.data.reading import read_table
from itocast.data.sources import DATASETS, NotPublished
from itocast.data.table import Columns

NUMBERS = "\n".join(f"{row},{row / 8},{row % 7}" for row in range(20_000))
PACKED = gzip.compress(NUMBERS.encode(), mtime=0)
PICKUPS = (
    '"pickup_dt","borough","pickups","spd","vsb","temp","dewp","slp","pcp01","pcp06","pcp24","sd","hday"\n'
    '2015-01-01 01:00:00,"Bronx",152,5,10,30,7,1023.5,0,0,0,0,"Y"\n'
    '2015-01-01 01:00:00,NA,2,5,10,30,7,,0,0,0,0,"N"\n'
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own, and nothing between this machine and its server."""
    monkeypatch.setenv("ITOCAST_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "cache"


@pytest.fixture
def data_dir(tmp_path):
    """Writes files into a folder, which it returns."""

    def write(**contents: str | bytes):
        for name, content in contents.items():
            path = tmp_path / "data" / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "data"

    return write


class Server:
    """Serves one file; remembers which parts were asked for and how much was sent, and can hang up early."""

    def __init__(self, content: bytes) -> None:
        self.content, self.ranges, self.sent = content, [], []
        self.cut: int | None = None
        self.knows_ranges, self.status = True, 200
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                server.ranges.append(wanted)
                if server.status != 200:
                    return self.send_error(server.status)
                start = int(wanted[6:-1]) if wanted and server.knows_ranges else 0
                if start >= len(server.content):
                    return self.send_error(416)
                body = server.content[start:]
                self.send_response(206 if start else 200)
                if start:
                    size = len(server.content)
                    self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                body = body[: server.cut]
                server.sent.append(len(body))
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/electricity.txt.gz"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    """A server from which the electricity dataset comes, which is small here."""
    server = Server(PACKED)
    publish(monkeypatch, address=server.address, check=digest(PACKED, "git:"))
    yield server
    server.http.shutdown()
    server.http.server_close()


def publish(monkeypatch, **changes) -> None:
    source = DATASETS["electricity"]
    monkeypatch.setitem(DATASETS, "electricity", source._replace(file=source.file._replace(**changes)))


# ---- what every dataset has


def test_metro_is_the_published_file():
    content = gzip.decompress((files("itocast.data") / "metro.csv.gz").read_bytes())
    assert len(content) == 3_237_208
    assert hashlib.sha256(content).hexdigest() == "749c90d720360a4215bb15345526073c079ba4cc95e3fa558796d083f85fce9e"
    assert datasets.open_dataset("metro").published


def test_metro_keeps_its_rows_and_words(tmp_path):
    metro = datasets.load("metro", data_dir=tmp_path)
    assert metro.shape == DATASETS["metro"].size == (48204, 9)
    assert metro["holiday"].eq("None").sum() == 48143
    assert metro["date_time"].duplicated().sum() == 7629
    assert metro["date_time"].is_monotonic_increasing


def sample(name: str) -> pd.DataFrame:
    """A few rows in the form of a dataset that is not in the package."""
    rows, columns = 50, DATASETS[name].size[1]
    frame = pd.DataFrame(np.random.default_rng(0).uniform(size=(rows, columns)))
    frame.columns = [*map("S{}".format, range(columns - 1)), "NDX"] if name == "stock" else map(str, frame.columns)
    return frame


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_says_what_it_is_and_can_be_read_by_its_schema(name, data_dir):
    source = DATASETS[name]
    assert all((source.title, source.unit, source.credit, source.file.name, source.file.page.startswith("https://")))
    kind, _, value = source.file.check.partition(":")
    assert len(bytes.fromhex(value)) == {"git": 20, "sha256": 32}[kind]
    assert (source.file.address or source.file.name).endswith(source.file.name)
    if name == "metro":
        data = datasets.open_dataset(name)
    else:
        text = PICKUPS if name == "pickups" else sample(name).to_csv(index=False, header=name == "stock")
        with pytest.warns(NotPublished, match="is not|cannot be shown to be"):
            data = datasets.open_dataset(name, data_dir(**{f"{name}__some_dot_csv": text}))
    assert data.frame.shape[1] == source.size[1]
    assert set(data.schema) <= set(inspect.signature(Forecaster.fit).parameters)
    target = data.schema["target"]
    targets = (target,) if isinstance(target, str) else tuple(target)
    columns = Columns(
        id=data.schema.get("id"), time=data.schema["time"], targets=targets,
        **{part: tuple(data.schema.get(part, ())) for part in ("past", "future", "static")},
    )  # fmt: skip
    table = read_table(data.frame, columns, freq="h" if name == "pickups" else None, repeated="keep", gaps="keep")
    assert len(table) == len(data.frame)


def test_a_schema_is_the_callers_own():
    datasets.schema("metro")["past"].clear()
    assert datasets.schema("metro")["past"] == ["temp", "rain_1h", "snow_1h", "clouds_all"]


def test_a_schema_that_does_not_depend_on_the_file_needs_none():
    assert datasets.schema("pickups")["id"] == "borough"


def test_unknown_dataset_is_refused_with_the_known_ones():
    for ask in (datasets.load, datasets.schema, datasets.open_dataset, datasets.where):
        with pytest.raises(ValueError, match="name='metr': expected one of metro, pickups, stock"):
            ask("metr")


# ---- files and what is in them


@pytest.mark.parametrize(
    ("text", "columns", "time"),
    [
        ("1,2.5,3\n4,5,6\n", ["1", "2", "3"], None),
        ("0.1 0.2\n0.3 0.4", ["1", "2"], None),
        ("0.1\t0.2\r\n0.3\t0.4\r\n", ["1", "2"], None),
        ("date,0,1\n2016/7/1 2:00,14,69\n2016/7/1 3:00,18,92\n", ["date", "0", "1"], "date"),
        ("ts,y\n2019-08-01 00:00:00,0.0\n2019-08-01 01:00:00,\n", ["ts", "y"], "ts"),
        ("2019-08-01,0.5,1\n2019-08-02,0.7,2\n", ["time", "1", "2"], "time"),
        ("\ufeffa;b\n1;2\n3;4\n", ["a", "b"], None),
        (",2\n3,4\n", ["1", "2"], None),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_tables_in_all_forms(data_dir, text, columns, time, packed):
    content = gzip.compress(text.encode()) if packed else text
    folder = data_dir(**{f"solar__plant_dot_txt{'_dot_gz' * packed}": content})
    with pytest.warns(NotPublished):
        data = datasets.open_dataset("solar", folder)
    assert data.frame.columns.tolist() == columns
    assert len(data.frame) == 2
    assert data.schema == {"target": columns[time is not None :], "time": time}
    assert all(map(pd.api.types.is_numeric_dtype, data.frame[data.schema["target"]].dtypes))


def test_a_borough_called_na_is_a_name(data_dir):
    with pytest.warns(NotPublished):
        frame = datasets.load("pickups", data_dir(uber_nyc_enriched_dot_csv=PICKUPS))
    assert frame["borough"].tolist() == ["Bronx", "NA"]
    assert frame["slp"].isna().tolist() == [False, True]


def test_a_file_that_is_not_the_published_one_is_used_with_a_warning(data_dir):
    folder = data_dir(electricity__mine_dot_csv="1,2\n3,4\n")
    message = r"mine.csv \(2 × 2\) cannot be shown to be the published electricity.txt.gz \(26,304 × 321\)"
    with pytest.warns(NotPublished, match=message) as caught:
        data = datasets.open_dataset("electricity", folder)
    assert caught[0].filename == __file__
    assert (data.file, data.published) == (folder / "electricity" / "mine.csv", False)
    with pytest.warns(NotPublished, match=message):
        assert datasets.load("electricity=electricity/mine.csv", folder).equals(data.frame)
    with pytest.warns(NotPublished, match=message):
        assert datasets.schema("electricity", folder) == data.schema
    folder = data_dir(electricity_dot_txt_dot_gz=gzip.compress(b"1,2\n3,4\n"))
    with pytest.warns(NotPublished, match=r"electricity.txt.gz \(2 × 2\) is not the published electricity.txt.gz"):
        assert datasets.load("electricity", folder).equals(data.frame)


def test_the_published_file_is_known_packed_or_not(data_dir, monkeypatch):
    source = DATASETS["pickups"]
    file = source.file._replace(check=digest(PICKUPS.encode(), "sha256:"))
    monkeypatch.setitem(DATASETS, "pickups", source._replace(file=file))
    assert datasets.open_dataset("pickups", data_dir(pickups__uber_nyc_enriched_dot_csv=PICKUPS)).published
    packed = data_dir(**{"b__pickups__uber_nyc_enriched_dot_csv_dot_gz": gzip.compress(PICKUPS.encode())}) / "b"
    assert datasets.open_dataset("pickups", packed).published
    publish(monkeypatch, check=digest(PACKED, "git:"))
    data = datasets.open_dataset("electricity", data_dir(electricity_dot_txt_dot_gz=PACKED))
    assert (data.published, data.digest, data.frame.shape) == (True, digest(PACKED, "git:"), (20_000, 3))


def test_the_digest_is_gits(tmp_path):
    (tmp_path / "file").write_bytes(PACKED)
    told = subprocess.run(["git", "hash-object", "--no-filters", tmp_path / "file"], capture_output=True, text=True)
    assert digest(PACKED, "git:") == f"git:{told.stdout.strip()}"


def test_of_several_files_one_must_be_named(data_dir):
    folder = data_dir(solar__b_dot_csv="1,2\n", solar__a_dot_txt="3,4\n", solar__notes_dot_md="")
    message = "solar holds 2 files, a.txt, b.csv, and no solar_AL.txt.gz: name .* as in 'solar=solar/a.txt'"
    with pytest.raises(ValueError, match=message):
        datasets.load("solar", folder)
    assert datasets.where("solar", folder) == f"several files in {folder}"
    with pytest.warns(NotPublished):
        assert datasets.load("solar=solar/b.csv", folder).to_numpy().tolist() == [[1, 2]]
    with pytest.raises(FileNotFoundError, match=r"name='solar=c.csv': there is no file .*c.csv; give its path"):
        datasets.load("solar=c.csv", folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a table that can be read: No columns"),
        (b"a,b\n\xff\xfe,1\n", "is not a table that can be read: 'utf-8' codec"),
        (PACKED[:1000], "is damaged or was cut short .*: copy or download it again"),
        (b"a,b\n1,2\n", "is not a file of stock: it has no column NDX; get nasdaq100_padding.csv from https"),
    ],
)
def test_files_that_cannot_be_used(data_dir, content, message):
    with pytest.raises(ValueError, match=message):
        datasets.load("stock", data_dir(nasdaq100_padding_dot_csv=content))


# ---- downloads


def test_a_download_is_checked_and_kept(server, cache, capsys, tmp_path):
    assert datasets.where("electricity") == "to be downloaded"
    data = datasets.open_dataset("electricity", tmp_path / "nothing")
    assert (data.published, data.frame.shape) == (True, (20_000, 3))
    assert data.file == cache / "electricity" / "electricity.txt.gz"
    assert [path.name for path in data.file.parent.iterdir()] == ["electricity.txt.gz"]
    server.status = 500
    assert datasets.load("electricity").equals(data.frame)
    assert server.ranges == [None]
    assert datasets.where("electricity") == "in the cache"
    assert capsys.readouterr() == ("", "")


def test_a_download_that_was_cut_goes_on(server, cache):
    server.cut = 50_000
    with pytest.raises(DownloadError, match="the connection was cut; try again later"):
        datasets.load("electricity")
    part = cache / "electricity" / "electricity.txt.gz.part"
    kept = part.stat().st_size
    assert 0 < kept <= 50_000
    server.cut = None
    assert datasets.open_dataset("electricity").published
    assert server.ranges == [None, f"bytes={kept}-"]
    assert server.sent == [50_000, len(PACKED) - kept]
    assert not part.exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_arrived_is_kept_when_the_download_is_stopped(server, cache, monkeypatch, stop):
    import requests

    def chunks(self, size):
        yield PACKED[:100]
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(requests.Response, "iter_content", chunks)
        with pytest.raises((KeyboardInterrupt, OSError)):
            datasets.load("electricity")
    assert [path.name for path in (cache / "electricity").iterdir()] == ["electricity.txt.gz.part"]
    assert datasets.open_dataset("electricity").published
    assert server.ranges[-1] == "bytes=100-"


def test_a_server_that_sends_no_parts_sends_all(server, cache):
    (cache / "electricity").mkdir(parents=True)
    (cache / "electricity" / "electricity.txt.gz.part").write_bytes(b"the beginning of something else")
    server.knows_ranges = False
    assert datasets.open_dataset("electricity").published


@pytest.mark.parametrize(("part", "asked"), [(PACKED, []), (PACKED + b"more", [f"bytes={len(PACKED) + 4}-", None])])
def test_a_part_that_is_whole_or_too_long(server, cache, part, asked):
    (cache / "electricity").mkdir(parents=True)
    (cache / "electricity" / "electricity.txt.gz.part").write_bytes(part)
    assert datasets.open_dataset("electricity").published
    assert server.ranges == asked


def test_a_download_that_is_not_the_published_file_is_removed(server, cache):
    server.content = gzip.compress(b"1,2\n")
    with pytest.raises(DownloadError, match=r"is not the published electricity.txt.gz: .* it was removed. Try again"):
        datasets.load("electricity")
    assert not list((cache / "electricity").iterdir())


def test_without_a_file_the_message_says_what_to_get_where_and_where_to_put_it(server, cache, monkeypatch, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        publish(monkeypatch, address=f"http://127.0.0.1:{closed.getsockname()[1]}/electricity.txt.gz")
        with pytest.raises(DownloadError) as raised:
            datasets.load("electricity", tmp_path / "data")
    for word in (
        "electricity.txt.gz could not be downloaded", "no connection", f"{cache / 'electricity'} or ",
        str(tmp_path / "data" / "electricity"), "https://github.com/laiguokun/multivariate-time-series-data",
    ):  # fmt: skip
        assert word in str(raised.value)
    server.status = 404
    publish(monkeypatch, address=server.address)
    with pytest.raises(DownloadError, match="the server answered 404 Not Found; try again later"):
        datasets.load("electricity")


def test_what_needs_a_login_is_asked_for(cache):
    with pytest.raises(DownloadError) as raised:
        datasets.load("pickups")
    assert str(raised.value) == (
        "uber_nyc_enriched.csv is not here, and its page asks for a login: get uber_nyc_enriched.csv from "
        "https://www.kaggle.com/datasets/yannisp/uber-pickups-enriched and put it into "
        f"{cache / 'pickups'} or into a folder that is named as data_dir"
    )
    assert datasets.where("pickups") == "by hand"


# ---- made up


def test_toy_follows_its_formula():
    toy = datasets.toy(seed=3)
    quiet = ~toy["x"].between(10, 20)
    assert len(toy) == 1000
    assert toy["x"].between(-30, 40).all()
    np.testing.assert_allclose(
        toy["y"][quiet], (0.4 * toy["x"] * np.sin(toy["x"]) + 0.7 * toy["x"] * np.cos(toy["x"] / 2))[quiet]
    )
    noise = (toy["y"] - toy["mean"])[~quiet] / (0.15 * toy["x"][~quiet])
    assert abs(noise.std() - 1) < 0.2
    pd.testing.assert_frame_equal(toy, datasets.toy(seed=3))
    assert not toy["y"].equals(datasets.toy(seed=4)["y"])


def test_settings_of_reading_have_a_word_each():
    assert all(field.description for field in Data.model_fields.values())
