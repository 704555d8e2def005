"""Queues. The queue of a job determines which workers can run it.

urgent: short jobs for which a user waits (registries.URGENT_JOBS). light: jobs without an LM. harvest: jobs that use an
LM on a CPU. gpu: jobs that use an LM on a CUDA device or on all devices. By default, a worker processes all queues that
its machine supports.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from kgharvest.engine.language_models.networks.placement import wants_gpu

URGENT, LIGHT, HARVEST, GPU = QUEUES = ("urgent", "light", "harvest", "gpu")


def queue_of(kind: str, payload: Mapping[str, Any]) -> str:
    """Return the queue of a job. `device` in the payload is the device of the LM; it defaults to a CPU."""
    if kind in settings.URGENT_JOBS:
        return URGENT
    if kind not in settings.LM_JOBS:
        return LIGHT
    return GPU if wants_gpu(str(payload.get("device", ""))) else HARVEST
