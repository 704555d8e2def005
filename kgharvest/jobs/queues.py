"""Queues: which workers are woken for a job.

urgent: seconds, and somebody waits (registries.URGENT_JOBS). light: loads no LM. harvest: loads an LM on a CPU. gpu: on
a CUDA device, or on all devices. A worker takes all of them that its machine is good for, unless `--queues` says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from kgharvest.engine.language_models.networks.placement import wants_gpu

URGENT, LIGHT, HARVEST, GPU = QUEUES = ("urgent", "light", "harvest", "gpu")


def queue_of(kind: str, payload: Mapping[str, Any]) -> str:
    """Return the queue of jobs of this kind; `device` of the payload says where an LM is loaded, a CPU if nothing."""
    if kind in settings.URGENT_JOBS:
        return URGENT
    if kind not in settings.LM_JOBS:
        return LIGHT
    return GPU if wants_gpu(str(payload.get("device", ""))) else HARVEST
