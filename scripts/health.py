"""An address of a worker's METRICS_PORT in, its health as exit code out: 0 when it can take jobs, 1 when not.

python scripts/health.py http://localhost:9400
"""

from __future__ import annotations

import sys

import httpx

LONGEST_S = 10.0


def main(arguments: list[str]) -> int:
    address = arguments[0] if arguments else "http://localhost:9400"
    try:
        answer = httpx.get(f"{address.rstrip('/')}/health", timeout=LONGEST_S, trust_env=False)
    except httpx.HTTPError as error:
        print(f"{address}: no worker answers ({type(error).__name__}); is METRICS_PORT set?", file=sys.stderr)
        return 1
    print(answer.text.strip())
    return 0 if answer.status_code == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
