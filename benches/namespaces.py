"""Several hosts under faults: state of a round and of harvests while links are cut and processes are killed.

    python benches/namespaces.py --broker rabbitmq|redis [--seed 0] [--annotators 40] [--tasks 400] [--harvests 100]

Requires root on Linux and the programs of PostgreSQL and the broker. Creates network namespaces for two web servers,
two workers, a host with its own PostgreSQL cluster and broker, people who judge, and the switch between them.
In random order, each link is cut for CUT_S seconds, each process is killed (SIGKILL) and restarted as by a service
manager, and PostgreSQL is restarted. Everything is created in a temporary folder and removed afterwards.

Checks, with exit status 1 if one fails: each task has exactly k judgments by k people; every acknowledged judgment is
stored once, with its label; every job succeeds and ends once; every harvest is byte for byte equal to that of a single
process; counters and verdicts match the judgments; the audit log verifies.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

POSTGRES = Path("/usr/lib/postgresql")
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
HOSTS = {"web1": 11, "web2": 12, "worker1": 21, "worker2": 22, "data": 30, "people": 40}
SMALL_HOSTS = ("web1", "worker1", "data", "people")
NET = "10.77.0"
CUT_S = 10
PAUSE_S = 4.0  # mean time between two faults; several may be active at once
PATIENCE_S = 480
K = 3
SECRET = "only-for-a-bench-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGH"
CELLS = [("embedded-small", setting) for setting in ("human", "top1", "multi")] + [("embedded", "human")]
FEW_CANDIDATES = {"candidates": 50, "max_tuples": 20, "max_entity_tokens": 1}
DEMO = ROOT / "kgharvest/relation_sets/demo.json"
COUNT_ENDS = """
CREATE TABLE bench_ends (job bigint);
CREATE FUNCTION bench_note_end() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO bench_ends VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER bench_ends AFTER UPDATE ON kgharvest_job FOR EACH ROW
WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION bench_note_end();
"""


def missing(broker: str) -> str:
    """Return a sentence about a missing requirement of this machine, or an empty string."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        return "Network namespaces require root on Linux and iproute2."
    name = f"kgp{os.getpid()}"
    trial = ["netns add {}", "-n {} link add bridge type bridge", "-n {} link add there type veth peer name here"]
    commands = [["ip", *command.format(name).split()] for command in trial]
    is_made = all(subprocess.run(command, capture_output=True).returncode == 0 for command in commands)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    if not is_made:
        return "Cannot create network namespaces with a bridge between them."
    if not list(POSTGRES.glob("*/bin/initdb")):
        return f"No initdb found below {POSTGRES}."
    server = RABBITMQ if broker == "rabbitmq" else shutil.which("redis-server")
    return "" if server and Path(server).exists() else f"{broker} is not installed."


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Network:
    """A namespace for each host, and one for the switch between them. Names contain the id of this process."""

    def __init__(self, hosts: Iterable[str]):
        self.hosts = list(hosts)
        self._switch = self.namespace("switch")

    def namespace(self, host: str) -> str:
        return f"kg{os.getpid()}-{host}"

    def __enter__(self) -> Network:
        for host in ["switch", *self.hosts]:
            ip("netns", "add", self.namespace(host))
            ip("-n", self.namespace(host), "link", "set", "lo", "up")
        ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            there = self.namespace(host)
            ends = ["link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", there]
            ip("-n", self._switch, *ends)
            ip("-n", self._switch, "link", "set", host, "master", "bridge", "up")
            ip("-n", there, "address", "add", f"{NET}.{HOSTS[host]}/24", "dev", "eth0")
            ip("-n", there, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *reason) -> None:
        for host in [*self.hosts, "switch"]:
            name = self.namespace(host)
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name])

    def set_link(self, host: str, state: str) -> None:
        ip("-n", self._switch, "link", "set", host, state)

    def start(self, host: str, command: list, log: Path, environment: dict[str, str]) -> subprocess.Popen:
        """Start a program on a host, in its own process group."""
        inside = ["ip", "netns", "exec", self.namespace(host), *map(str, command)]
        with log.open("a") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            return subprocess.Popen(inside, env=environment, cwd=ROOT, start_new_session=True, **streams)


class Service:
    """A program that is restarted whenever it ends, until it is stopped."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen]):
        self.name, self._start = name, start
        self.process = start()
        self.n_starts, self._ended_at = 1, 0.0

    def restart_ended(self) -> None:
        if self.process.poll() is None:
            self._ended_at = 0.0
        elif not self._ended_at:
            self._ended_at = time.monotonic()
        elif time.monotonic() - self._ended_at > 1:  # delay of a service manager
            self.process, self._ended_at = self._start(), 0.0
            self.n_starts += 1

    def kill(self) -> None:
        """Kill all its processes at once, except PostgreSQL's, which end when they notice that their parent is dead."""
        os.killpg(self.process.pid, signal.SIGKILL)


class Hosts:
    """The services on their hosts, with all files in `folder`."""

    def __init__(self, network: Network, folder: Path, broker: str, is_small: bool):
        self.network, self.folder, self.broker, self.is_small = network, folder, broker, is_small
        self.bin = max(POSTGRES.glob("*/bin"), key=lambda path: float(path.parent.name))
        self.services: list[Service] = []
        self._sockets = folder / "sockets"

    def environment(self, host: str, here: bool = False) -> dict[str, str]:
        """Return the variables of kgharvest's programs on a host. here: for a process outside the namespaces."""
        address = quoted(self._sockets) if here else f"{NET}.{HOSTS['data']}:5432"
        brokers = {"rabbitmq": "amqp://guest:guest@{}:5672//", "redis": "redis://{}:6379/0"}
        variables = {name: value for name, value in os.environ.items() if not name.startswith("KGHARVEST_")}
        data = self.folder / host
        data.mkdir(exist_ok=True)
        return variables | {
            "KGHARVEST_DATA_DIR": str(data),
            "DATABASE_URL": f"postgres://postgres@{address}/kgharvest",
            "BROKER_URL": "" if here else brokers[self.broker].format(f"{NET}.{HOSTS['data']}"),
            "SECRET_KEY": SECRET,
            "ALLOWED_HOSTS": f"{NET}.11,{NET}.12,127.0.0.1",
            "DEBUG": "1" if here else "",
            "OMP_NUM_THREADS": "1",
            "DJANGO_SETTINGS_MODULE": "tests.kgharvest.jobs.worker_settings",
            "TEST_REAL_LM": "" if self.is_small else "1",
            "TEST_LEASE_S": "5" if self.is_small else "15",
            "SLOW_RUNNER_STEPS": "5",
        }

    def start_data(self) -> None:
        """Create a cluster without fsync, because no power failure is simulated, and start database and broker."""
        cluster = self.folder / "cluster"
        for path in (cluster, self._sockets):
            path.mkdir()
            shutil.chown(path, "postgres")
        as_postgres = ["runuser", "-u", "postgres", "--"]
        options = ["--auth", "trust", "--no-sync", "--no-instructions", "-D", cluster]
        subprocess.run([*as_postgres, self.bin / "initdb", *options], check=True, stdout=subprocess.DEVNULL)
        with (cluster / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {NET}.0/24 trust\n")
        settings = {"listen_addresses": "*", "unix_socket_directories": self._sockets, "fsync": "off"}
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        # Not through runuser, because signals would reach runuser instead of PostgreSQL.
        command = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self._serve("data", "postgres", [*command, self.bin / "postgres", "-D", cluster, *flags], {})
        if self.broker == "redis":
            command = [
                "redis-server",
                "--bind",
                "0.0.0.0",
                "--protected-mode",
                "no",
                "--save",
                "",
                "--dir",
                self.folder,
            ]
            self._serve("data", "redis", command, {})
        else:
            (self.folder / "rabbitmq.conf").write_text("loopback_users = none\nlisteners.tcp.default = 5672\n")
            (self.folder / "plugins").write_text("[].\n")
            places = {"MNESIA_BASE": "mnesia", "LOG_BASE": "rabbitmq-log", "CONFIG_FILE": "rabbitmq.conf"}
            places |= {"ENABLED_PLUGINS_FILE": "plugins", "PID_FILE": "rabbitmq.pid"}
            variables = {f"RABBITMQ_{name}": str(self.folder / file) for name, file in places.items()}
            variables |= {"RABBITMQ_NODENAME": "bench@localhost", "HOME": str(self.folder)}
            self._serve("data", "rabbitmq", [RABBITMQ], variables)

    def start_programs(self) -> None:
        for host in self.named("web"):
            bind = f"{NET}.{HOSTS[host]}:8000"
            command = [sys.executable, "-m", "gunicorn", "kgharvest.wsgi", "--bind", bind, "--log-level", "error"]
            self._serve(host, host, command, self.environment(host))
        for host in self.named("worker"):
            command = [sys.executable, "-m", "celery", "-A", "kgharvest", "worker", "--loglevel", "INFO", "-n", host]
            self._serve(host, host, command, self.environment(host))

    def named(self, kind: str) -> list[str]:
        return [host for host in self.network.hosts if host.startswith(kind)]

    def _serve(self, host: str, name: str, command: list, variables: dict[str, str]) -> None:
        log = self.folder / f"{name}.log"
        environment = {**os.environ, **variables}
        if host != "data":
            environment = variables
        self.services.append(Service(name, lambda: self.network.start(host, command, log, environment)))

    def restart_ended(self) -> None:
        for service in self.services:
            service.restart_ended()

    def faults(self, rng: random.Random) -> list[tuple[str, str]]:
        faults = [("cut", host) for host in self.network.hosts if host != "people"]
        faults += [("kill", service.name) for service in self.services] + [("restart", "postgres")]
        rng.shuffle(faults)
        return faults

    def inflict(self, kind: str, name: str) -> None:
        if kind == "cut":
            self.network.set_link(name, "down")
            return
        [service] = [service for service in self.services if service.name == name]
        if kind == "kill":
            service.kill()
        else:
            service.process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown; the service restarts it


def quoted(path: Path) -> str:
    return str(path).replace("/", "%2F")


def wait_until(holds: Callable[[], object], event: str, patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if holds():
                return
        except Exception as error:  # not available yet
            event = f"{event} ({error})"[:300]
        if time.monotonic() > deadline:
            raise RuntimeError(f"Timed out: {event}.")
        time.sleep(0.3)


# Harvests and people


def queue_harvests(n: int, how: dict[str, int] | None = None) -> None:
    """Queue `n` different harvests with the command, each large enough to be interrupted by faults."""
    from django.core.management import call_command

    entries = sorted(json.loads(DEMO.read_text())["relations"], key=lambda entry: len(entry["seed_tuples"][0]))
    relations = [entry["name"] for entry in entries]  # binary first: the LM's stand-in knows no others
    chosen = defaultdict(list)
    for relation, cell in [(relation, cell) for cell in CELLS for relation in relations][:n]:
        chosen[cell].append(relation)
    how = how or {"candidates": 300, "max_tuples": 100}
    for (model, setting), names in chosen.items():
        call_command("harvest", model=[model], setting=[setting], relation=names, **how)


def exported() -> dict[str, str]:
    """Return the exported tuples of each harvest in the database."""
    from kgharvest.harvests.tuple_files import export_tuples
    from kgharvest.models import HarvestJob

    jobs = HarvestJob.objects.with_cell().filter(launch__isnull=False)
    return {f"{job.relation.name} {job.language_model.name} {job.setting}": "".join(export_tuples(job)) for job in jobs}


def write_reference(file: Path, n: int) -> None:
    """Run the harvests in this single process, on its own database, and write their exported tuples."""

    from kgharvest.jobs import ledger
    from kgharvest.models import Job

    queue_harvests(n)
    for job_id in list(Job.objects.filter(status="queued").values_list("pk", flat=True)):
        ledger.run_job(job_id)
    file.write_text(json.dumps(exported()))


def reference(hosts: Hosts, n: int) -> dict[str, str]:
    """Return the exported tuples of the harvests as run by one process on a copy of the database."""
    from django.db import connection

    file, environment = hosts.folder / "reference.json", hosts.environment("reference", here=True)
    connection.close()
    with connection._nodb_cursor() as cursor:  # not connected to the database that is copied
        cursor.execute("CREATE DATABASE alone TEMPLATE kgharvest")
    environment["DATABASE_URL"] = environment["DATABASE_URL"].replace("/kgharvest", "/alone")
    command = [sys.executable, __file__, "--write-reference", file, "--harvests", str(n)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())


def write_people(hosts: Hosts, round, n: int, longest_pause_s: float) -> None:
    from tests.factories import make_annotators
    from tests.load.web_server import logged_in

    config = {
        "webs": [f"{NET}.{HOSTS[host]}" for host in hosts.named("web")],
        "path": f"/judge/{round.pk}/",
        "cookies": [logged_in(annotator.user) for annotator in make_annotators(round, n)],
        "share": round.n_tasks * K * 0.9 // n,
        "longest_pause_s": longest_pause_s,
    }
    (hosts.folder / "people.json").write_text(json.dumps(config))


def inflict_faults(hosts: Hosts, round, rng: random.Random) -> list[str]:
    """Inflict every fault once while people judge and workers run jobs, until all is done; return timed events."""
    from django.db import DatabaseError, connection

    from kgharvest.models import Job

    faults, links_up_at, events = hosts.faults(rng), {}, []
    began, next_at = time.monotonic(), time.monotonic() + 3
    while time.monotonic() < began + PATIENCE_S:
        now = time.monotonic()
        hosts.restart_ended()
        for host in [host for host, at in links_up_at.items() if now >= at]:
            hosts.network.set_link(host, "up")
            del links_up_at[host]
        if faults and now >= next_at:
            kind, name = faults.pop()
            hosts.inflict(kind, name)
            if kind == "cut":
                links_up_at[name] = now + CUT_S
            events.append(f"{now - began:.0f} s {kind} {name}")
            next_at = now + rng.uniform(0.5, 1.5) * PAUSE_S
        if not faults and not links_up_at:
            (hosts.folder / "faults_are_over").touch()
            try:
                is_judged = not round.tasks.filter(verdict="").exists()
                if is_judged and not Job.objects.unfinished().exists():
                    return [*events, f"{time.monotonic() - began:.0f} s all done"]
            except DatabaseError:  # PostgreSQL is being restarted
                connection.close()
        time.sleep(0.2)
    raise RuntimeError(f"Not finished after {PATIENCE_S} s: {events}")


# Checks


def recomputed(round) -> dict[int, tuple]:
    """Return judgments, labels, and verdict of each task, computed from its judgments alone."""
    from annotation.models import Judgment

    labels = defaultdict(list)
    for task, annotator, label in (
        Judgment.objects.counted().filter(task__round=round).values_list("task", "annotator", "label")
    ):
        labels[task].append((annotator, label))
    tasks = {}
    for task, given in labels.items():
        n = Counter(label for _, label in given)
        n_people = len({annotator for annotator, _ in given})
        verdict = "accepted" if 2 * n["true"] > K else "rejected" if 2 * n["false"] > K else "undecided"
        tasks[task] = (n_people, n["true"], n["false"], n["unjudgeable"], verdict)
    return tasks


def failed_checks(hosts: Hosts, round, expected: dict[str, str]) -> dict[str, object]:
    """Return the exceptions to each claim that does not hold; empty if all claims hold."""
    from django.core.management import call_command
    from django.db import connection

    from annotation.judging.sealing import seal_judgments
    from annotation.models import Judgment
    from kgharvest.models import HarvestJob

    noted = [json.loads(line) for line in (hosts.folder / "acknowledged.jsonl").read_text().splitlines()]
    acknowledged = {answer["uuid"]: answer["label"] for answer in noted}
    stored = {str(uuid): label for uuid, label in Judgment.objects.filter(task__round=round).values_list("pk", "label")}
    lost = {uuid for uuid, label in acknowledged.items() if stored.get(uuid) != label}
    counters = ("n_judgments", "n_true", "n_false", "n_unjudgeable", "verdict")
    tables = {row[0]: row[1:] for row in round.tasks.values_list("pk", *counters)}
    with connection.cursor() as cursor:
        cursor.execute("SELECT job FROM bench_ends")
        ends = Counter(job for (job,) in cursor.fetchall())
    jobs = HarvestJob.objects.filter(launch__isnull=False)
    files, counted = exported(), recomputed(round)
    people = list(round.annotators.values_list("pk", "n_judged"))
    judged = Counter(Judgment.objects.current().filter(task__round=round).values_list("annotator", flat=True))
    different = [cell for cell in files | expected if files.get(cell) != expected.get(cell)]
    if hosts.is_small:  # the stand-in returns the same three tuples for every relation
        different = [cell for cell, file in files.items() if file.count("\n") != 3]
    seal_judgments()
    print(
        f"{len(acknowledged)} answers acknowledged, {len(stored)} stored; {jobs.count()} harvests, "
        f"{jobs.filter(summary__has_key='parts').count()} of them by several workers, attempts "
        f"{dict(sorted(Counter(jobs.values_list('attempts', flat=True)).items()))}; "
        f"{sum(map(len, files.values())):,} bytes of tuples; starts "
        f"{ {service.name: service.n_starts for service in hosts.services} }; "
        f"{(hosts.folder / 'failures').read_text()} requests of people failed and were retried"
    )
    claims = {
        "every task has k judgments by k people": [row for row in tables.items() if row[1][0] != K],
        "no acknowledged judgment is lost": lost,
        "every job succeeded": list(jobs.exclude(status="succeeded").values_list("pk", "status", "error")),
        "every job ended once": [pk for pk in jobs.values_list("pk", flat=True) if ends[pk] != 1],
        "every harvest equals that of a single process": different,
        "counters and verdicts match the judgments": [pk for pk in tables if tables[pk] != counted.get(pk)],
        "people's counts match the judgments": [pk for pk, n in people if judged[pk] != n],
        "every process was killed": [service.name for service in hosts.services if service.n_starts < 2],
    }
    call_command("audit", "verify")
    return {claim: exceptions for claim, exceptions in claims.items() if exceptions}


# Course of the bench


def run(options: argparse.Namespace) -> bool:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kgharvest-hosts-") as name,
        Network(SMALL_HOSTS if options.small else HOSTS) as network,
    ):
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        hosts = Hosts(network, folder, options.broker, options.small)
        try:
            return run_on_hosts(options, hosts)
        finally:
            print(f"{options.broker}, seed {options.seed}: {time.monotonic() - began:.0f} s in total")
            if options.logs:
                shutil.copytree(folder, options.logs, ignore=lambda _, names: [n for n in names if "." not in n])


def make_database() -> bool:
    from django.db import connection

    with connection._nodb_cursor() as cursor:
        cursor.execute("CREATE DATABASE kgharvest")
    return True


def run_on_hosts(options: argparse.Namespace, hosts: Hosts) -> bool:
    hosts.start_data()
    os.environ.clear()
    os.environ.update(hosts.environment("bench", here=True))
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.factories import make_round

    wait_until(make_database, "PostgreSQL starts")
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(COUNT_ENDS)
    call_command("import_relations", DEMO, verbosity=0)
    expected = {} if options.small else reference(hosts, options.harvests)
    round = make_round(options.tasks, judgments_per_task=K, batch_size=4)
    write_people(hosts, round, options.annotators, options.longest_pause)
    hosts.start_programs()
    launch = [sys.executable, __file__, "--queue", "--harvests", str(options.harvests), *["--small"] * options.small]
    launching = hosts.network.start("web1", launch, hosts.folder / "launch.log", hosts.environment("web1"))
    if launching.wait(PATIENCE_S):
        raise RuntimeError((hosts.folder / "launch.log").read_text())
    program = [sys.executable, "tests/load/people_of_several_webs.py", hosts.folder]
    people = hosts.network.start("people", program, hosts.folder / "people.log", dict(os.environ))
    wait_until(lambda: (hosts.folder / "acknowledged.jsonl").exists(), "the first judgment is acknowledged")
    events = inflict_faults(hosts, round, random.Random(options.seed))
    (hosts.folder / "is_over").touch()
    people.wait(60)
    print("; ".join(events))
    failed = failed_checks(hosts, round, expected)
    print(json.dumps(failed, indent=1, default=str) if failed else "All checks passed.")
    return not failed


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=["rabbitmq", "redis"], default="rabbitmq")
    for name, default in (("seed", 0), ("annotators", 40), ("tasks", 400), ("harvests", 100)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    parser.add_argument("--longest-pause", type=float, default=6.0, metavar="SECONDS")
    parser.add_argument("--small", action="store_true", help="one web server, one worker, a stand-in for the LM")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="folder to copy the logs to")
    parser.add_argument("--write-reference", type=Path, help=argparse.SUPPRESS)  # these two run as separate programs
    parser.add_argument("--queue", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    options = parsed()
    if options.write_reference or options.queue:
        import django

        django.setup()
        if options.queue:
            queue_harvests(options.harvests, FEW_CANDIDATES if options.small else None)
        else:
            write_reference(options.write_reference, options.harvests)
    elif lack := missing(options.broker):
        sys.exit(lack)
    else:
        sys.exit(not run(options))
