"""S3-compatible store for tests: a moto server on this machine that can be stopped and restarted."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from kgharvest.environment import file_storage

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_REGION": "us-east-1"}


class StoreServer:
    """moto server on a separate port. Its contents survive a restart."""

    def __init__(self) -> None:
        self._reserved_port = socket.socket()  # reserved while the server is stopped
        self._reserved_port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved_port.bind(("127.0.0.1", 0))
        self._port = self._reserved_port.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.is_there = False
        self.come_back()

    def come_back(self) -> None:
        if not self.is_there:
            self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
            self._server.start()
            self.is_there = True

    def go_away(self) -> None:
        self._server.stop()
        self.is_there = False

    def close(self) -> None:
        self.go_away()
        self._reserved_port.close()


class Store:
    """Bucket. address: value for KGHARVEST_FILES, with a prefix that must be escaped in URLs and signatures."""

    def __init__(self, server: StoreServer) -> None:
        self.server = server
        self.bucket = f"kg-{uuid4().hex}"
        self.address = f"s3://{self.bucket}/lab%20%C3%A4+b/kg?endpoint={server.url}"
        self.client = boto3.client("s3", endpoint_url=server.url)
        self.client.create_bucket(Bucket=self.bucket)

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [entry["Key"] for entry in found]


@contextmanager
def serving_files() -> Iterator[StoreServer]:
    server = StoreServer()
    try:
        yield server
    finally:
        server.close()
        # Collecting objects of boto3 runs Python code, which must not happen deep in a recursion of another test.
        gc.collect()


@contextmanager
def store_on(server: StoreServer, settings, monkeypatch, folder: Path) -> Iterator[Store]:
    """Store files in a new bucket, with the settings of a host whose data folder is `folder`."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("kgharvest.operations.s3_files.CONNECT_TIMEOUT_S", 0.5)
    store = Store(server)
    keep_files_in(store.address, settings, monkeypatch, folder)
    try:
        yield store
    finally:
        server.come_back()


def keep_files_in(address: str, settings, monkeypatch, folder: Path) -> None:
    """Apply `address` as KGHARVEST_FILES to the settings of this process. If it is empty, files are in `folder`."""
    monkeypatch.setenv("KGHARVEST_FILES", address)
    settings.STORAGES = settings.STORAGES | {"files": file_storage("KGHARVEST_FILES", folder)}
