"""A site for tests/deploy/test_units.py: it says which process answers."""

import os


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getppid()).encode()]
