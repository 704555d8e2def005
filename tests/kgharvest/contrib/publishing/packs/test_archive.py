"""Reading and writing packs: limits on names, file counts, and sizes; no extraction to disk."""

import io
import os
import subprocess
import sys
import zipfile

import pytest
from django.conf import settings

from kgharvest.contrib.publishing.packs import archive
from kgharvest.contrib.publishing.packs.archive import Pack, PackFile, write_pack
from kgharvest.contrib.publishing.packs.row_files import BadPack, read_rows
from tests.refusals import refused

FILES = [PackFile("b/two.txt", b"2" * 1000, "text/plain", ""), PackFile("one.txt", b"1", "text/plain", "")]


def zip_of(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive_file:
        for name, content in files.items():
            archive_file.writestr(name, content)
    return buffer.getvalue()


def refusal(tmp_path, content: bytes) -> str:
    (tmp_path / "pack.zip").write_bytes(content)
    with pytest.raises(BadPack) as refused:
        dict(Pack(tmp_path / "pack.zip"))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_zip_is_independent_of_time_and_order(tmp_path):
    write_pack(FILES, tmp_path / "one.zip")
    write_pack(FILES[::-1], tmp_path / "other.zip")

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive_file:
        assert {entry.date_time for entry in archive_file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_folder_and_zip_have_the_same_contents(tmp_path):
    for name in ("pack", "pack.zip"):
        write_pack(FILES, tmp_path / name)
        assert dict(Pack(tmp_path / name)) == {file.path: file.content for file in FILES}


def test_failed_write_leaves_no_folder(tmp_path):
    (tmp_path / "pack").write_text("a file")

    with refused("NotWritable"):
        write_pack(FILES, tmp_path / "pack")
    with refused("NotWritable"):
        write_pack([PackFile("x" * 300, b"", "", "")], tmp_path / "new")
    assert os.listdir(tmp_path) == ["pack"]


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../b", "a\\b", "./a", "a//b"])
def test_unsafe_file_names_are_rejected(name, tmp_path):
    assert "Invalid file name" in refusal(tmp_path, zip_of(**{name: b""}))


def test_zip_bombs_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_PACK", 10_000)
    assert "exceed 2 GB" in refusal(tmp_path, zip_of(a=b"0" * 6000, b=b"0" * 6000))
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    assert "more than 3 files" in refusal(tmp_path, zip_of(a=b"", b=b"", c=b"", d=b""))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit")
@pytest.mark.parametrize(
    ("name", "piece", "n"),
    [
        ("report.json", b"0" * (1 << 20), 1000),
        ("report.json", b"[]," * 300_000, 400),
        ("SHA256SUMS", b"\n" * (1 << 20), 400),
    ],
)
def test_memory_of_verification_is_limited(tmp_path, name, piece, n):
    with zipfile.ZipFile(tmp_path / "pack.zip", "w", zipfile.ZIP_DEFLATED) as bomb, bomb.open(name, "w") as file:
        file.write(b"[")
        for _ in range(n):
            file.write(piece)
        file.write(b"0]")
    measured = "import resource; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "manage.py", "verify", str(tmp_path / "pack.zip")]
    script = f"import subprocess; subprocess.run({command!r}); {measured}"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=settings.BASE_DIR)

    assert "needs more than 300 MB" in done.stderr
    assert int(done.stdout) < 320 << 10  # kilobytes


def test_broken_files_are_rejected(tmp_path):
    content = zip_of(**{"report.json": b"{}" * 500})
    assert "as a ZIP file" in refusal(tmp_path, b"PK no ZIP")
    assert "as a ZIP file" in refusal(tmp_path, content[:40] + b"\xff\xff\xff" + content[43:])
    with pytest.raises(BadPack, match="not found"):
        Pack(tmp_path / "none.zip")


def test_links_in_a_folder_are_rejected(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "report.json").symlink_to("/etc/passwd")

    with pytest.raises(BadPack, match="not a regular file"):
        Pack(tmp_path / "pack")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "is not JSON in UTF-8"),
        (b"[" * 100_000, "is not JSON in UTF-8"),
        (b"[]", "does not have the columns"),
        (b'{"statement": 1}', "does not have the columns"),
        (
            b'{"statement": 1e999, "annotator": "a", "label": "", "seconds": null, "judged_at": null, "status": null}',
            "invalid statement inf, expected integer",
        ),
        (
            b'{"statement": 1, "annotator": "a", "label": "true", "seconds": NaN, "judged_at": null, "status": null}',
            "invalid seconds nan, expected number",
        ),
        (
            b'{"statement": 1, "annotator": "a", "label": "true", "seconds": 1, "judged_at": "now", "status": null}',
            "invalid judged_at 'now', expected datetime",
        ),
    ],
)
def test_invalid_rows_are_rejected_with_their_line(line, reason):
    with pytest.raises(BadPack, match=r"rows/judgments\.jsonl, line 1") as refused:
        read_rows({"rows/judgments.jsonl": line + b"\n"})
    assert reason in str(refused.value)
