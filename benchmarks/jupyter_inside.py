"""Runs inside a container: a stock ipykernel and jupyter_client, as one would use them there by hand.

Each line of stdin is a cell, as JSON text; each line of stdout is how many seconds it took, or `"ready"` at first.
"""

import json
import sys
import time

from jupyter_client.manager import KernelManager

CELL_TIMEOUT_S = 30

manager = KernelManager(transport="ipc", kernel_name="python3")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    code = json.loads(line)
    began = time.perf_counter()
    reply = client.execute_interactive(code, output_hook=lambda message: None, timeout=CELL_TIMEOUT_S)
    took = time.perf_counter() - began
    print(json.dumps(took if reply["content"]["status"] == "ok" else None), flush=True)
manager.shutdown_kernel(now=True)
