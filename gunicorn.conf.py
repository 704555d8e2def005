"""How gunicorn serves the pages; arguments of `./run web` go before these."""

import gc
import resource

worker_class = "kgharvest.web_worker.ReceivingWorker"  # slow and idle clients keep no thread
threads = 8
worker_connections = 4_000  # open at once, idle ones included
control_socket_disable = True
preload_app = True  # workers share what is loaded once
keepalive = 75  # seconds: longer than a judge looks at a statement, and than proxies keep a connection

# Each connection is an open file, and systems allow a thousand unless they are asked.
n_files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
wanted_files = max(n_files, 2 * worker_connections)
if most_files != resource.RLIM_INFINITY:
    wanted_files = min(wanted_files, most_files)
resource.setrlimit(resource.RLIMIT_NOFILE, (wanted_files, most_files))


def when_ready(server):
    """Leave what every worker needs for good out of each collection of garbage."""
    gc.collect()
    gc.freeze()
