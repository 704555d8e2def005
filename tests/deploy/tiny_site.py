"""Minimal WSGI site for tests/deploy/test_units.py that returns the ID of the gunicorn master process."""

import os


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getppid()).encode()]
