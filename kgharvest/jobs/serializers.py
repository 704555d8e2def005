"""The fields of a job that every serializer of long work shows."""

JOB_FIELDS = ("status", "is_unfinished", "stage", "done", "total", "attempts", "error")
JOB_TIMES = ("created_at", "started_at", "finished_at")
