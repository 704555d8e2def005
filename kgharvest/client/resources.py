"""API resources as attributes of a client: `client.relations.create(...)`, `client.launches.list()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgharvest.client.errors import JobFailed
from kgharvest.client.transport import TIMEOUT_S, TRIES, Row, Transport

if TYPE_CHECKING:
    import pandas

POLL_S = 1.0
# Names of the current and the total count in launches, rounds, and jobs.
COUNTS = (("n_over", "n_jobs"), ("n_judgments", "n_wanted"), ("done", "total"))
ROWS_PER_PAGE = 500


class Rows(Iterable[Row]):
    """Rows that are requested lazily, page by page or line by line. Every iteration over the object sends new requests.

    label: label of the progress bar, which requires tqdm, or None for no progress bar.
    """

    def __init__(self, read: Callable[[], Iterator[Row]], label: str | None = None):
        self._read, self._label = read, label

    def __iter__(self) -> Iterator[Row]:
        rows = self._read()
        if self._label is None or find_spec("tqdm") is None:
            return rows
        bar: Iterable[Row] = import_module("tqdm").tqdm(rows, desc=self._label, disable=None)
        return iter(bar)

    def first(self) -> Row | None:
        """Return the first row, or None."""
        return next(self._read(), None)

    def to_frame(self) -> pandas.DataFrame:
        """Return all rows as a data frame. Raises ModuleNotFoundError if pandas is not installed."""
        frame: pandas.DataFrame = import_module("pandas").DataFrame(list(self))
        return frame


class Resource:
    """One resource of the API. Unless stated otherwise, methods return the JSON of the response as a dict."""

    def __init__(self, client: Client, path: str):
        self._client, self.path = client, path.strip("/") + "/"

    def list(self, **filters: Any) -> Rows:
        """Return the matching rows. The API documentation lists the filters."""
        return self._client.rows(self.path, filters, self.path.strip("/"))

    def get(self, key: int | str) -> Row:
        return self._row("GET", f"{self.path}{key}/")

    def _row(self, method: str, path: str, **options: Any) -> Row:
        row: Row = self._client.request(method, path, **options)
        return row

    def create(self, **fields: Any) -> Row:
        """Create an object. Retries after connection errors do not create a second object."""
        return self._row("POST", self.path, json=fields)

    def update(self, key: int | str, **fields: Any) -> Row:
        return self._row("PATCH", f"{self.path}{key}/", json=fields)

    def delete(self, key: int | str) -> None:
        self._client.request("DELETE", f"{self.path}{key}/")

    def act(self, key: int | str, action: str, **fields: Any) -> Any:
        """Call an operation of an object, for example `client.jobs.act(7, "cancel")`."""
        return self._client.request("POST", f"{self.path}{key}/{action}/", json=fields)

    def file(self, key: int | str, name: str) -> bytes:
        """Return a file of an object, for example `client.reports.file(7, "report.xlsx")`."""
        with self._client.answer("GET", f"{self.path}{key}/{name}", headers={"Accept": "*/*"}) as response:
            return response.read()

    def read(self, key: int | str, part: str, **parameters: Any) -> Any:
        """Return a part of an object, as parsed JSON or as the bytes of a file."""
        return self._client.request("GET", f"{self.path}{key}/{part}/", params=_without_none(parameters))

    def rows(self, key: int | str, part: str, **filters: Any) -> Rows:
        """Return a part of an object that is a list."""
        return self._client.rows(f"{self.path}{key}/{part}/", filters, part)

    def upload(self, file: Path | str, action: str = "import", **fields: Any) -> Any:
        """Upload a file with form fields."""
        path = Path(file)
        with path.open("rb") as content:
            return self._client.request(
                "POST", f"{self.path}{action}/", data=_without_none(fields), files={"file": (path.name, content)}
            )


class Projects(Resource):
    def webhooks(self, key: str) -> Resource:
        """Return the webhooks of a project: `client.projects.webhooks("birds").create(url=..., events=[...])`."""
        return Resource(self._client, f"{self.path}{key}/webhooks")

    def audit(self, key: str, **filters: Any) -> Rows:
        """Return the audit log of a project, newest entry first."""
        return self.rows(key, "audit", **filters)


class Harvests(Resource):
    def tuples(self, key: int, cut: str | None = None, include: str | None = None) -> Rows:
        """Stream the tuples, best first.

        cut: for example "top:100"; default: all. include: "all" also includes hidden and sensitive tuples.
        """
        parameters = _without_none({"cut": cut, "include": include})
        return self._client.lines(f"{self.path}{key}/tuples/", parameters, "tuples")


class Rounds(Resource):
    def wait(self, key: int, timeout_s: float | None = None) -> Row:
        """Wait until the round has all required judgments. Return its progress. Raises TimeoutError."""
        return self._client.poll(
            f"round {key}", lambda: self.read(key, "progress"), lambda progress: not progress["n_left"], timeout_s
        )

    def judge(self, key: int, **spec: Any) -> Row:
        """Start a judge run on the round's tuples. spec: see docs/judges.md. `Client.wait` waits for the run."""
        return self._row("POST", f"{self.path}{key}/judge-runs/", json=spec)

    def panels(self, key: int) -> Resource:
        """Return the panels of a round: `client.rounds.panels(7).create(platform="sona")`."""
        return Resource(self._client, f"{self.path}{key}/panels")

    def preregister(self, key: int, **plan: Any) -> Row:
        """Preregister the round with a plan, before the first judgment. plan: see docs/preregistration.md."""
        return self._row("POST", f"{self.path}{key}/preregistrations/", json=plan)

    def report(self, key: int, judge: str | None = None, **options: Any) -> Row:
        """Create a report on the round. judge: name of a judge run whose labels are used to narrow the intervals."""
        return self._row("POST", "reports/", json=_without_none({"round": key, "judge": judge, **options}))


class Client(Transport):
    """Client of one server. `url` and `token` default to KGHARVEST_URL and KGHARVEST_TOKEN.

    progress: show progress bars if tqdm is installed and standard error is a terminal.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        progress: bool = True,
    ):
        super().__init__(url, token, timeout_s, tries)
        self._progress = progress
        self.projects = Projects(self, "projects")
        self.tokens = Resource(self, "tokens")
        self.audit = Resource(self, "audit")
        self.relation_sets = Resource(self, "relation-sets")
        self.relations = Resource(self, "relations")
        self.language_models = Resource(self, "language-models")
        self.launches = Resource(self, "launches")
        self.jobs = Resource(self, "jobs")
        self.workers = Resource(self, "workers")
        self.harvests = Harvests(self, "harvests")
        self.knowledge = Resource(self, "knowledge")
        self.probes = Resource(self, "probes")
        self.rounds = Rounds(self, "rounds")
        self.judge_runs = Resource(self, "judge-runs")
        self.reports = Resource(self, "reports")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resource(self, path: str) -> Resource:
        """Return a resource that is not an attribute of this class. path: path below /api/v1/."""
        return Resource(self, path)

    def rows(self, path: str, filters: Mapping[str, Any], label: str) -> Rows:
        """Return the rows of all pages of a list."""
        parameters = {"limit": ROWS_PER_PAGE, **_without_none(filters)}

        def read() -> Iterator[Row]:
            page = self.request("GET", path, params=parameters)
            yield from page["results"]
            while page["next"]:
                page = self.request("GET", page["next"])
                yield from page["results"]

        return Rows(read, label if self._progress else None)

    def lines(self, path: str, parameters: Mapping[str, Any], label: str) -> Rows:
        """Return the rows of a JSON Lines response."""
        return Rows(lambda: self.json_lines(path, parameters), label if self._progress else None)

    def wait(self, row: Row, timeout_s: float | None = None) -> Row:
        """Wait until a launch, harvest, probe, or other job has ended. Return its final state.

        Raises TimeoutError, or JobFailed if the job failed or was canceled, or if no harvest of the launch succeeded.
        """
        is_launch = "counts" in row
        kind, name = (self.launches, "launch") if is_launch else (self.jobs, "job")
        latest = self.poll(
            f"{name} {row['id']}", lambda: kind.get(row["id"]), lambda row: not row["is_unfinished"], timeout_s
        )
        if is_launch:
            if latest["counts"]["succeeded"]:
                return latest
            failed = self.harvests.list(launch=latest["id"], status="failed").first()
            raise JobFailed(failed["error"] if failed else f"Launch {latest['id']} was canceled.")
        if latest["status"] in {"failed", "cancelled"}:
            raise JobFailed(latest["error"] or f"Job {latest['id']} was {latest['status']}.", code=latest["status"])
        return latest

    def poll(
        self, label: str, ask: Callable[[], Row], is_over: Callable[[Row], bool], timeout_s: float | None = None
    ) -> Row:
        """Poll every second, with a progress bar, until `is_over` is true. Return the last response.

        Raises TimeoutError.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with _progress_bar(label if self._progress else None) as show:
            while not is_over(latest := ask()):
                show(latest)
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{label} has not ended within {timeout_s:g} s and is still running.")
                time.sleep(POLL_S)
        return latest


@contextmanager
def _progress_bar(label: str | None) -> Iterator[Callable[[Row], None]]:
    """Yield a function that shows a job or launch in a progress bar, if `label` is given and tqdm is installed."""
    if label is None or find_spec("tqdm") is None:
        yield lambda row: None
        return
    with import_module("tqdm").tqdm(desc=label, disable=None, leave=False) as bar:

        def show(row: Row) -> None:
            done, total = next(names for names in COUNTS if names[0] in row)
            bar.total = row[total]
            bar.update(row[done] - bar.n)

        yield show


def _without_none(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
