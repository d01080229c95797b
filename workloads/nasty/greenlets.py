# 55: stacks that are copied to the heap and put back, with the return addresses of calls in progress in them.
# With "wait" it says where it is and waits for a line, once before calls are suspended and once behind.
# With "child" only a forked child of it does any of that.
import os
import sys

if sys.argv[1:] == ["child"]:
    pid = os.fork()
    if pid:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

import greenlet


def told(where):
    if sys.argv[1:] == ["wait"]:
        print(where, flush=True)
        sys.stdin.readline()


def key(value):
    main.switch(1)
    return value


def body():
    return sum(sorted([3, 1, 2], key=key))


main = greenlet.getcurrent()
all = [greenlet.greenlet(body) for _ in range(20)]
told("ready")
for one in all:
    one.switch()
told("suspended")
total = 0
while any(not one.dead for one in all):
    for one in all:
        if not one.dead:
            total += one.switch() or 0
print("total", total, flush=True)
