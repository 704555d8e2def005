"""Compose file: it follows the Compose Specification and is self-consistent. No container is started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kgharvest.jobs.queues import QUEUES
from tests.browser.proxied_server import FRAME, has_ipv6, make_certificate, over_ipv4
from tests.deploy.commands import ROOT, fixed_arguments

COMPOSE = ROOT / "deploy" / "compose.yaml"
EXAMPLE = ROOT / "deploy" / "compose.env.example"
KGHARVEST_SERVICES = {"web-1", "web-2", "worker", "urgent-worker", "gpu-worker", "migrate", "backup"}
WORKERS = {"worker", "urgent-worker", "gpu-worker"}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:-[^}]*)?")


@cache
def document() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


def services() -> dict[str, dict[str, Any]]:
    return document()["services"]


def test_compose_file_matches_specification():
    schema = json.loads((Path(__file__).parent / "schemas" / "compose-2021.json").read_text())

    assert [error.message for error in jsonschema.Draft201909Validator(schema).iter_errors(document())] == []


def test_referenced_volumes_services_and_profiles_exist():
    for name, service in services().items():
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", [])}

        assert {volume for volume in volumes if volume[0] not in "./$"} <= document()["volumes"].keys(), name
        assert set(service.get("depends_on", {})) <= services().keys(), name
        for other in service.get("depends_on", {}):
            # A dependency must be enabled in every profile of the service that waits for it.
            assert set(services()[other].get("profiles", [])) <= set(service.get("profiles", [])), name


def test_example_lists_required_variables_and_leaves_secrets_empty():
    listed = dict(re.findall(r"^(?:# )?([A-Z][A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE))
    used = VARIABLE.findall(COMPOSE.read_text())

    assert {name for name, default in used if not default} <= listed.keys()
    assert {value for name, value in listed.items() if re.search("PASSWORD$|SECRET_KEY$", name)} == {""}


def test_kgharvest_containers_are_restricted_and_restart():
    for name in KGHARVEST_SERVICES:
        service = services()[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["restart"] == {"migrate": "on-failure", "backup": "no"}.get(name, "unless-stopped")


def test_image_builds_receive_commit():
    for name in KGHARVEST_SERVICES:
        assert services()[name]["build"]["args"]["COMMIT"] == "${COMMIT:-}", name


def test_services_wait_for_migrations():
    for name in KGHARVEST_SERVICES - {"migrate"}:
        assert services()[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_workers_run_the_command_of_worker():
    command = ["python", *fixed_arguments("celery")]

    names = {name for name in KGHARVEST_SERVICES if services()[name].get("command", [])[: len(command)] == command}
    assert names == WORKERS


def test_workers_consume_every_queue():
    commands = [services()[name]["command"] for name in WORKERS]
    queues = {queue for command in commands for queue in command[command.index("--queues") + 1].split(",")}

    assert queues == set(QUEUES)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_proxy_derives_its_configuration_from_shipped_file(tmp_path):
    make_certificate(tmp_path)
    _, _, command = services()["proxy"]["command"]
    script = (
        command.partition(" && ")[0].replace("$$", "$").replace("/etc/nginx/conf.d/default.conf", f"{tmp_path}/site")
    )
    script = script.replace(" /nginx.conf ", f" {ROOT}/deploy/nginx.conf ")

    subprocess.run(["sh", "-c", script], env={"KGHARVEST_HOST": "lab.example.org", "PATH": "/usr/bin:/bin"}, check=True)

    site = (tmp_path / "site").read_text()
    assert "server_name lab.example.org;" in site
    assert "    server web-1:8000; server web-2:8000;\n" in site
    # nginx -t resolves host names and reads the certificate, so use a local address and the test certificate.
    site = re.sub(r"web-[12]:8000", "127.0.0.1:8000", site).replace(
        "/etc/letsencrypt/live/lab.example.org", str(tmp_path)
    )
    site = site if has_ipv6() else over_ipv4(site)
    (tmp_path / "nginx.conf").write_text(FRAME.format(folder=tmp_path, site=site))
    done = subprocess.run(
        ["nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
