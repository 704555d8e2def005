"""gunicorn settings of the web server. Arguments of `./run web` take precedence."""

import gc

worker_class = "kgharvest.operations.web_worker.WaitressWorker"
threads = 8
control_socket_disable = True
preload_app = True  # workers share code that is loaded once
keepalive = 75  # idle seconds; longer than an annotator looks at a statement, and longer than proxies keep a connection


def when_ready(server):
    """Exclude from garbage collection the objects that every worker needs permanently."""
    gc.collect()
    gc.freeze()
