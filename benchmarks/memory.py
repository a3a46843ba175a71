"""The peak resident memory of this process."""

import re
import resource
from pathlib import Path


def peak_memory() -> int:
    """Bytes. On Linux from /proc: getrusage would count the parent's memory at the fork too."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+)", status.read_text())):
        return 1024 * int(found[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
