"""A Python program with marks: `rounds.py SECONDS` prints how many rounds it made in a second."""

import sys
import time

sys.path.insert(0, sys.argv[2])
import whither  # noqa: E402


def work():
    return sum(i * i for i in range(20000))


begun = time.monotonic()
rounds = 0
while time.monotonic() - begun < float(sys.argv[1]):
    with whither.request("round"):
        work()
    whither.progress("rounds")
    rounds += 1
print("per_second", rounds / (time.monotonic() - begun))
