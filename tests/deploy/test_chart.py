"""Helm chart: values match their schema, and rendered objects match the Kubernetes schemas.

Helm is not required: gotpl renders Go templates with Helm's functions in Python. If `helm` is installed, a test
compares the output of both. These tests do not check that a cluster accepts and runs the objects.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml
from gotpl.exts.helm import HelmTemplateEngine

from kgharvest import VERSION
from kgharvest.jobs.queues import QUEUES

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "kgharvest"
SECRET = {"SECRET_KEY": "k" * 50, "DATABASE_URL": "postgres://a:b@c/d", "BROKER_URL": "amqp://a:b@c//"}
GPU = {"replicas": 4, "queues": "gpu", "pool": "prefork", "concurrency": 1, "gpus": 1, "drainSeconds": 60}
VALUES: dict[str, dict[str, Any]] = {
    "a secret of the cluster": {"existingSecret": "kgharvest"},
    "a secret of the chart": {"secret": SECRET, "ingress": {"enabled": False}},
    "everything": {
        "existingSecret": "kgharvest",
        "image": {"repository": "registry.example.org/kgharvest", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": ["registry"],
        "baseUrl": "https://harvest.example.org:8443/kg",
        "settings": {"KGHARVEST_LOG": "lines", "KGHARVEST_FILES": "s3://bucket/prefix?endpoint=https://s3.example.org"},
        "web": {
            "autoscaling": {"enabled": True},
            "nodeSelector": {"pool": "web"},
            "tolerations": [{"key": "web", "operator": "Exists"}],
        },
        "workers": {"gpu": GPU | {"nodeSelector": {"pool": "gpu"}}, "bare": GPU | {"gpus": 0, "queues": "harvest"}},
        "persistence": {"enabled": True, "storageClass": "shared"},
        "networkPolicy": {"enabled": True, "prometheusNamespace": "monitoring"},
    },
    "a volume that is there": {"existingSecret": "a", "persistence": {"enabled": True, "existingClaim": "files"}},
    "no workers": {"existingSecret": "a", "workers": {"light": None, "harvest": None, "gpu": None}},
}


def merge(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge `changes` into `values` as Helm does: recursively, and null deletes a key."""
    result = deepcopy(values)
    for key, change in changes.items():
        if change is None:
            result.pop(key, None)
        elif isinstance(change, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], change)
        else:
            result[key] = change
    return result


def chart_values(changes: dict[str, Any]) -> dict[str, Any]:
    return merge(yaml.safe_load((CHART / "values.yaml").read_text()), changes)


@cache
def engine() -> HelmTemplateEngine:
    return HelmTemplateEngine({path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())})


def render(changes: dict[str, Any], release: str = "lab") -> dict[str, str]:
    """Render each template of the chart with `changes` merged into the default values."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    context = {
        "Values": chart_values(changes),
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
        "Release": {"Name": release, "Namespace": "study", "Service": "Helm"},
    }
    return engine().render({path.name: context for path in (CHART / "templates").glob("[!_]*")})


def objects(changes: dict[str, Any], release: str = "lab") -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rendered objects by kind and name."""
    texts = [text for name, text in render(changes, release).items() if name.endswith(".yaml")]
    found = [item for text in texts for item in yaml.safe_load_all(text) if item]
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(by_name) == len(found)
    return by_name


@cache
def schemas() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "schemas" / "kubernetes-1.37.json").read_text())


def schema_errors(item: dict[str, Any]) -> list[str]:
    schema = schemas() | {"$ref": f"#/$defs/{item['kind']}"}
    return [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(item)
    ]


def check_values(changes: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text())).validate(chart_values(changes))


@pytest.mark.parametrize("changes", VALUES.values(), ids=VALUES)
def test_rendered_objects_match_kubernetes_schemas(changes):
    check_values(changes)

    items = objects(changes)

    assert [(name, fault) for name, item in items.items() for fault in schema_errors(item)] == []


def test_unknown_kubernetes_field_is_reported():
    [service] = [item for (kind, _), item in objects(VALUES["everything"]).items() if kind == "Service"]
    service["spec"]["port"] = 80

    assert "'port' was unexpected" in schema_errors(service)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {},  # no secret
        {"secret": SECRET | {"SECRET_KEY": "short"}},
        {"existingSecret": "a", "baseUrl": "http://harvest.example.org"},
        {"existingSecret": "a", "settings": {"DATABASE_URL": "postgres://a:b@c/d"}},
        {"existingSecret": "a", "settings": {"PROXY_COUNT": 2}},  # variables must be strings
        {"existingSecret": "a", "workers": {"gpu": {"queues": "gpus"}}},
        {"existingSecret": "a", "workers": {"web": GPU}},
        {"existingSecret": "a", "replicas": 3},
        {"existingSecret": "a", "networkPolicy": {"enabled": True, "ingressNamespace": ""}},
        {"existingSecret": "a", "networkPolicy": {"prometheusNamespace": ["monitoring"]}},
    ],
    ids=str,
)
def test_invalid_values_are_rejected(changes):
    with pytest.raises(jsonschema.ValidationError):
        check_values(changes)


@pytest.mark.parametrize("changes", VALUES.values(), ids=VALUES)
def test_each_selector_matches_one_deployment(changes):
    items = objects(changes)
    labels = {
        name: item["spec"]["template"]["metadata"]["labels"]
        for (kind, name), item in items.items()
        if kind == "Deployment"
    }
    for (kind, name), item in items.items():
        if kind in {"Deployment", "PodDisruptionBudget", "Service"}:
            selector = item["spec"]["selector"]
            required = selector.get("matchLabels", selector).items()
            assert [other for other, has in labels.items() if required <= has.items()] == [name]


@pytest.mark.parametrize("changes", VALUES.values(), ids=VALUES)
def test_containers_have_their_secret_and_minimal_privileges(changes):
    for name, item in objects(changes).items():
        if "template" not in item.get("spec", {}):
            continue
        pod = item["spec"]["template"]["spec"]
        [container] = pod["containers"]
        folders = {mount["name"] for mount in container["volumeMounts"]}
        variables = [entry["name"] for entry in container["env"]]

        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["runAsUser"] == 10001
        assert not pod["automountServiceAccountToken"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["envFrom"] == [{"secretRef": {"name": changes.get("existingSecret") or "lab-kgharvest"}}]
        assert folders == {volume["name"] for volume in pod["volumes"]}
        assert len(variables) == len(set(variables))
        assert not SECRET.keys() & set(variables)


def test_migration_hook_runs_after_its_secret_exists():
    items = objects(VALUES["a secret of the chart"])

    def hook(kind: str, name: str) -> tuple[str, int]:
        annotations = items[kind, name]["metadata"]["annotations"]
        return annotations["helm.sh/hook"], int(annotations["helm.sh/hook-weight"])

    assert hook("Job", "lab-kgharvest-migrate") == ("pre-install,pre-upgrade", 0)
    assert hook("Secret", "lab-kgharvest") == ("pre-install,pre-upgrade,pre-rollback", -10)
    assert items["Secret", "lab-kgharvest"]["stringData"] == SECRET


def test_gpu_worker_requests_gpu_and_cuda_image():
    items = objects({"existingSecret": "a", "workers": {"gpu": {"replicas": 3}}})
    pod = items["Deployment", "lab-kgharvest-gpu"]["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert container["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/gpu": 1}
    assert container["image"] == f"kgharvest:{VERSION}-cuda"
    assert pod["terminationGracePeriodSeconds"] == 3600
    other = items["Deployment", "lab-kgharvest-harvest"]["spec"]["template"]["spec"]["containers"][0]
    assert other["image"] == f"kgharvest:{VERSION}"
    assert "nvidia.com/gpu" not in other["resources"]["limits"]


def test_workers_consume_every_queue():
    queues = {queue for worker in chart_values({})["workers"].values() for queue in worker["queues"].split(",")}

    assert queues == set(QUEUES)
    for queue in QUEUES:
        check_values({"existingSecret": "a", "workers": {"gpu": {"queues": queue}}})


def test_ingress_uses_host_and_path_of_base_url():
    address = urlsplit(VALUES["everything"]["baseUrl"])
    [rule] = objects(VALUES["everything"])["Ingress", "lab-kgharvest"]["spec"]["rules"]

    assert rule["host"] == address.hostname
    assert rule["http"]["paths"][0]["path"] == address.path
    assert (
        objects({"existingSecret": "a"})["Ingress", "lab-kgharvest"]["spec"]["rules"][0]["http"]["paths"][0]["path"]
        == "/"
    )


@pytest.mark.parametrize(
    ("prometheus", "namespaces"), [("", ["ingress-nginx"]), ("monitoring", ["ingress-nginx", "monitoring"])]
)
def test_network_policy_admits_only_ingress_and_prometheus(prometheus, namespaces):
    changes = {"existingSecret": "a", "networkPolicy": {"enabled": True, "prometheusNamespace": prometheus}}

    policy = objects(changes)["NetworkPolicy", "lab-kgharvest"]

    [rule] = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in namespaces
    ]
    assert schema_errors(policy) == []


def test_notes_name_existing_deployments():
    assert (
        "exec deployment/lab-kgharvest-web -- python manage.py members --first-owner"
        in render(VALUES["a secret of the cluster"])["NOTES.txt"]
    )


def test_object_names_fit_the_kubernetes_limit():
    assert all(len(name) <= 63 for _, name in objects(VALUES["everything"], release="a" * 53))


def test_chart_version_equals_code_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("changes", VALUES.values(), ids=VALUES)
def test_helm_renders_the_same_objects(changes, tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(changes))
    command = ["helm", "template", "lab", CHART, "--namespace", "study", "--values", tmp_path / "values.yaml"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    items = [item for item in yaml.safe_load_all(done.stdout) if item]
    assert {(item["kind"], item["metadata"]["name"]): item for item in items} == objects(changes)
