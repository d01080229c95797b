"""Progress points in Python programs, for `whither causal`: where a program makes progress, and where requests
begin and end. The Python twin of include/whither.h.

    import whither

    for order in orders:
        with whither.request("order"):
            handle(order)
        whither.progress("orders")

`whither causal --progress mark:orders --latency mark:order -- python3 shop.py` finds them. A point is one 1-byte nop in
a small file of its own, which is mapped when the point is first used and describes itself by a note (`stapsdt`, provider
`whither`), as compiled points do; tools that know such notes see them too. A visit is a call of that nop through
ctypes. In a hot loop keep the point: `step = whither.point("steps")`, then `step()`.

Nothing else is loaded, no thread is started, and nothing happens at exit. Where a point cannot be made (another system than
Linux on x86-64, no folder that may hold code, WHITHER_OFF in the environment) visits do nothing.
"""

import contextlib
import ctypes
import os
import re
import struct
import sys
import tempfile

__all__ = ["progress", "begin", "end", "request", "point"]

_PAGE = 4096
# Where the nop lies in the file, and in memory behind the start of the mapping; a `ret` follows it.
_CODE_AT = 0x100
_CODE = b"\x90\xc3"
_points = {}


def progress(name):
    """The program has made one step of progress."""
    _get(name)()


def begin(name):
    """A request of this kind begins; in any thread."""
    _get(name + "_begin")()


def end(name):
    """A request of this kind ends; in any thread."""
    _get(name + "_end")()


@contextlib.contextmanager
def request(name):
    """A request of this kind, from its beginning to its end, also by an exception."""
    begin(name)
    try:
        yield
    finally:
        end(name)


def point(name):
    """The point as a function of no arguments: the quickest way to visit it again and again."""
    return _get(name)


def _get(name):
    return _points.get(name) or _points.setdefault(name, _make(name))


def _nothing():
    """A point that cannot be made."""


def _make(name):
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise ValueError(f"{name!r} is no name for a point: letters, digits and _ only")
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return _nothing
    if "WHITHER_OFF" in os.environ:
        return _nothing
    content = _file_of(name)
    for folder in _folders():
        try:
            return _mapped(_kept(folder, name, content))
        except OSError:
            continue
    return _nothing


def _folders():
    """Folders of this user alone that may hold the files: kept ones first, so that nothing is left behind twice."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield os.path.join(cache, "whither", "marks")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(runtime, "whither-marks")
    yield tempfile.mkdtemp(prefix="whither-marks-")


def _kept(folder, name, content):
    """The path of the point's file, made anew unless it is there as it should be."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    about = os.stat(folder)
    # Code is not taken from where others may put some.
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(folder)
    path = os.path.join(folder, f"{name}.so")
    try:
        with open(path, "rb") as file:
            if file.read() == content:
                return path
    except OSError:
        pass
    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
    return path


def _mapped(path):
    """The code of a file, mapped for good, as a function."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    readable_executable, private = 1 | 4, 2
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = library.mmap(None, _PAGE, readable_executable, private, handle, 0)
    finally:
        os.close(handle)
    if start in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap", path)
    # PYFUNCTYPE keeps the interpreter's lock: there is nothing to wait for.
    return ctypes.PYFUNCTYPE(None)(start + _CODE_AT)


def _file_of(name):
    """An ELF file of one page: one loaded segment, the nop, its note."""
    note = _note(name)
    names = b"\0.text\0.note.stapsdt\0.stapsdt.base\0.shstrtab\0"
    note_at = _CODE_AT + 16
    base_at = note_at + len(note)
    names_at = base_at + 1
    sections_at = (names_at + len(names) + 7) & ~7

    def section(of, kind, flags, at, size):
        where = names.index(b"\0" + of + b"\0") + 1 if of else 0
        return struct.pack("<IIQQQQIIQQ", where, kind, flags, at if flags else 0, at, size, 0, 0, 4 if kind == 7 else 1, 0)

    sections = [
        section(b"", 0, 0, 0, 0),
        section(b".text", 1, 6, _CODE_AT, len(_CODE)),
        section(b".note.stapsdt", 7, 0, note_at, len(note)),
        section(b".stapsdt.base", 1, 2, base_at, 1),
        section(b".shstrtab", 3, 0, names_at, len(names)),
    ]
    # 64 bits, little-endian; a shared object for x86-64 with one segment (read, execute) and these sections.
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, len(sections), len(sections) - 1)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, _PAGE, _PAGE, _PAGE)
    content = bytearray(_PAGE)
    content[0 : len(header)] = header
    content[64 : 64 + len(segment)] = segment
    content[_CODE_AT : _CODE_AT + len(_CODE)] = _CODE
    content[note_at : note_at + len(note)] = note
    content[names_at : names_at + len(names)] = names
    table = b"".join(sections)
    content[sections_at : sections_at + len(table)] = table
    return bytes(content)


def _note(name):
    """The note as <sys/sdt.h> lays it out: where the nop is, where the base, no semaphore; provider, name, no arguments."""
    owner = b"stapsdt\0"
    strings = b"whither\0" + name.encode() + b"\0" + b"\0"
    # The base is where the note ends, as `_file_of` places it; its address depends on the strings' length.
    unpadded = 24 + len(strings)
    padded = (unpadded + 3) & ~3
    base = _CODE_AT + 16 + 12 + len(owner) + padded
    text = struct.pack("<QQQ", _CODE_AT, base, 0) + strings
    return struct.pack("<III", len(owner), unpadded, 3) + owner + text.ljust(padded, b"\0")
