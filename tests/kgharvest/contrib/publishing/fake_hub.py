"""Hugging Face Hub on the loopback interface: the endpoints that an upload of a data set uses, with Git LFS storage."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_valid"
OWNER = "lab"


class Refused(Exception):
    """A reply other than 200: status, message, further fields of the body."""


@dataclass
class Repository:
    """branches: contents by path. commits: summaries, in order."""

    is_private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {".gitattributes": b""}})
    commits: list[str] = field(default_factory=list)


class FakeHub:
    """requests: "METHOD path" in order. failures: status of the next request whose line matches the pattern."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}  # by SHA-256
        self.requests: list[str] = []
        self.failures: dict[str, int] = {}
        self.url = ""

    def answer(self, method: str, path: str, token: str, body: bytes) -> dict[str, Any]:
        line = f"{method} {path}"
        self.requests.append(line)
        for pattern, status in list(self.failures.items()):
            if re.search(pattern, line):
                del self.failures[pattern]
                raise Refused(status, "Out of order")
        if match := re.fullmatch(r"PUT /storage/(\w+)", line):
            assert sha256(body).hexdigest() == match[1]
            self.stored[match[1]] = body
            return {}
        if token != TOKEN:
            raise Refused(401, "Invalid credentials in Authorization header")
        for pattern, reply in (
            (r"POST /api/repos/create", self.create),
            (r"POST /api/validate-yaml", lambda body: {}),
            (r"GET /api/datasets/([\w/.-]+?)(?:/revision/(.+))?", self.about),
            (r"POST /api/datasets/([\w/.-]+)/branch/(.+)", self.create_branch),
            (r"POST /api/datasets/([\w/.-]+)/preupload/(.+)", self.preupload),
            (r"POST /datasets/([\w/.-]+)\.git/info/lfs/objects/batch", self.lfs_batch),
            (r"POST /api/datasets/([\w/.-]+)/commit/(.+)", self.commit),
        ):
            if match := re.fullmatch(pattern, line):
                names = [unquote(name) if name else None for name in match.groups()]
                return reply(*names, body) if method == "POST" else reply(*names)
        raise Refused(404, "No such address")

    def find(self, name: str) -> Repository:
        if name not in self.repositories:
            raise Refused(404, "Repository not found")
        return self.repositories[name]

    def create(self, body: bytes) -> dict[str, Any]:
        options = json.loads(body)
        assert options["type"] == "dataset"
        name = f"{options['organization']}/{options['name']}"
        if options["organization"] != OWNER:
            raise Refused(403, f"You don't have the rights to create a dataset under {options['organization']}")
        if name in self.repositories:
            raise Refused(409, "You already created this dataset repo", {"url": f"{self.url}/datasets/{name}"})
        self.repositories[name] = Repository(options["visibility"] == "private")
        return {"url": f"{self.url}/datasets/{name}"}

    def about(self, name: str, branch: str | None) -> dict[str, Any]:
        repository = self.find(name)
        files = [{"rfilename": path} for path in repository.branches[branch or "main"]]
        commit = sha1(str(repository.commits).encode()).hexdigest()
        return {"id": name, "sha": commit, "private": repository.is_private, "siblings": files, "tags": []}

    def create_branch(self, name: str, branch: str, body: bytes) -> dict[str, Any]:
        branches = self.find(name).branches
        if branch in branches:
            raise Refused(409, "Reference already exists")
        branches[branch] = dict(branches["main"])
        return {}

    def preupload(self, name: str, branch: str, body: bytes) -> dict[str, Any]:
        existing = self.find(name).branches[branch]
        files = []
        for file in json.loads(body)["files"]:
            is_large, content = file["path"].endswith(".parquet"), existing.get(file["path"])
            oid = None
            if content is not None:
                git_blob = b"blob %d\0" % len(content) + content
                oid = sha256(content).hexdigest() if is_large else sha1(git_blob).hexdigest()
            mode = "lfs" if is_large else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": files}

    def lfs_batch(self, name: str, body: bytes) -> dict[str, Any]:
        self.find(name)
        objects = []
        for asked in json.loads(body)["objects"]:
            actions = {"upload": {"href": f"{self.url}/storage/{asked['oid']}"}}
            objects.append({**asked, **({} if asked["oid"] in self.stored else {"actions": actions})})
        return {"transfer": "basic", "objects": objects}

    def commit(self, name: str, branch: str, body: bytes) -> dict[str, Any]:
        repository = self.find(name)
        contents = dict(repository.branches[branch])
        for operation in map(json.loads, body.splitlines()):
            value = operation["value"]
            match operation["key"]:
                case "header":
                    summary = value["summary"]
                case "file":
                    contents[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    contents[value["path"]] = self.stored[value["oid"]]
                case "deletedFile":
                    del contents[value["path"]]
        repository.branches[branch] = contents
        repository.commits.append(summary)
        commit = sha1(str(repository.commits).encode()).hexdigest()
        return {"commitUrl": f"{self.url}/datasets/{name}/commit/{commit}", "commitOid": commit}


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            try:
                status, reply = 200, hub.answer(self.command, self.path.partition("?")[0], token, body)
            except Refused as refused:
                status, message, *fields = refused.args
                reply = {"error": message, **dict(*fields)}
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = handle_request

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
