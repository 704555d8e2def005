"""How gunicorn serves the pages; arguments of `./run web` go before these."""

import gc

worker_class = "kgharvest.operations.web_worker.WaitressWorker"
threads = 8
control_socket_disable = True
preload_app = True  # workers share what is loaded once
keepalive = 75  # seconds without a byte: longer than a judge looks at a statement, and than proxies keep a connection


def when_ready(server):
    """Leave what every worker needs for good out of each collection of garbage."""
    gc.collect()
    gc.freeze()
