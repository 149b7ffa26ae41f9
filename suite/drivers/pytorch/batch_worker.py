"""A process that builds batches: `python batch_worker.py JOBS ANSWERS PARENT`, two pipes and the pid of its rank.

It imports what the builder needs and nothing else: without torch it is there in a fraction of a second. It lives no
longer than its rank: the kernel kills it with the rank, and it leaves by itself when there are no more jobs. Nothing
that it uses has a name, so nothing is left behind where both are killed.
"""

import ctypes
import os
import pickle
import signal
import struct
import sys
import traceback

NUMBER = struct.Struct("<Q")
PR_SET_PDEATHSIG = 1
DETAIL = 2000
"""Characters of an exception's text."""


def write_frame(pipe, value):
    """Pickle `value` into an unbuffered binary file; arrays go as they lie in memory."""
    buffers = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    sizes = [len(parts), *(part.nbytes for part in parts)]
    for part in (memoryview(b"".join(map(NUMBER.pack, sizes))), *parts):
        while part:
            part = part[pipe.write(part) :]


def read_frame(pipe):
    """The next value of the other side, its arrays writable. Raises EOFError where that side is gone."""
    (count,) = NUMBER.unpack(_exactly(pipe, NUMBER.size))
    sizes = [NUMBER.unpack(_exactly(pipe, NUMBER.size))[0] for _ in range(count)]
    head, *buffers = [_exactly(pipe, size) for size in sizes]
    return pickle.loads(head, buffers=buffers)


def _exactly(pipe, size):
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        got = pipe.readinto(rest)
        if not got:
            raise EOFError
        rest = rest[got:]
    return content


def serve(jobs, answers):
    """Answer each job with ("batch", what the builder makes of it) or ("problem", kind, text), until there are none."""
    builder, problem = None, None
    setup = read_frame(jobs)
    try:
        sys.path[:] = setup["path"]
        builder = pickle.loads(setup["builder"])
    except BaseException as error:  # told in answer to the first job
        problem = _told(error)
    while True:
        job = read_frame(jobs)
        write_frame(answers, problem or _built(builder, job))


def _built(builder, job):
    try:
        return "batch", builder(job)
    except BaseException as error:  # whatever it is, the rank raises it where it is due
        return _told(error)


def _told(error):
    traceback.print_exception(error)
    return "problem", type(error).__name__, str(error)[:DETAIL]


def _tie(parent):
    """End with the rank, however it ends. Its own signals are not ours: it decides when we end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def main(argv):
    """Serve until the rank closes the pipe of jobs."""
    jobs, answers, parent = map(int, argv)
    _tie(parent)
    with os.fdopen(jobs, "rb", buffering=0) as source, os.fdopen(answers, "wb", buffering=0) as sink:
        try:
            serve(source, sink)
        except (EOFError, BrokenPipeError):
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
