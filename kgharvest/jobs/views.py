"""Page of workers and queues."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kgharvest.access import Action, check_may, may, researcher_required
from kgharvest.jobs.overview import queue_rows, worker_rows
from kgharvest.models import Worker
from kgharvest.pages.refusals import refusal_as_message


@researcher_required
def worker_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    context = {
        "rows": worker_rows(request.user, now),
        "queues": queue_rows(now),
        "may_manage": may(request.user, Action.MANAGE, None),
    }
    return render(request, "kgharvest/jobs/workers.html", context)


@researcher_required
@require_POST
def worker_change(request: HttpRequest, pk: int, change: Callable[[Worker, Any], None], done: str) -> HttpResponse:
    """Drain or undrain a worker. change: the service function to call. done: end of the success message."""
    check_may(request.user, Action.MANAGE, None)
    worker = get_object_or_404(Worker, pk=pk)
    with refusal_as_message(request):
        change(worker, request.user)
        messages.success(request, f"{worker} {done}")
    return redirect("kgharvest:worker_list")
