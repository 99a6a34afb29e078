"""Fuzzing of everything that reads exported programs: `make fuzz`, or `python -m tests.export.fuzz SECONDS [SEED]`.

Artifacts of the corpus are damaged as bytes, and their headers changed as data with a digest that agrees; texts of
shapes and constraints are grown from their own pieces. The reader must answer each with an artifact or an
`ArtifactError`, quickly, in memory that is in proportion to the file. What it takes badly is written to
tests/data/export/findings/, where the ordinary tests keep it.
"""

import faulthandler
import hashlib
import json
import random
import resource
import struct
import sys
import time

from tests.export.corpus import DATA

from phalanx.export import SymbolicScope, deserialize, symbolic_shape
from phalanx.export.format import MAGIC, VERSION, split
from phalanx.export.trees import ArtifactError

SLOW = 5.0  # seconds that one input may take
MEMORY = 2 << 30  # bytes by which the process may grow
VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    1e308,
    "",
    "*",
    "b",
    "float32[b]",
    "key<rbg>[]",
    [],
    {},
    ["*"],
    [[]],
]
WORDS = "a b n floordiv mod max min non_negative ( ) , + - * ^ // % == >= <= > < 0 1 2 7 999999999 _ ... ² x1".split(
    " "
)


def sealed(header, program, derivative):
    """An artifact of these parts with a digest that agrees."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    head = struct.pack("<8sIIQQ", MAGIC, VERSION, len(text), len(program), len(derivative))
    data = head + text + bytes(program) + bytes(derivative)
    return data + hashlib.sha256(data).digest()


def damaged(data, r):
    """The bytes with some of them changed, cut off or repeated."""
    data = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 4, 16])):
        at = r.randrange(len(data) + 1)
        match r.randrange(4):
            case 0 if at < len(data):
                data[at] ^= 1 << r.randrange(8)
            case 1:
                del data[at:]
            case 2:
                del data[at : at + r.randrange(64)]
            case _:
                data[at:at] = data[at : at + r.randrange(64)]
        if not data:
            break
    return bytes(data)


def mutated(value, r, depth=0):
    """JSON data with one of its parts replaced."""
    if depth > 8 or r.random() < 0.15:
        return r.choice([*VALUES, text(r), [value] * r.choice([0, 2, 50])])
    if isinstance(value, dict) and value:
        key = r.choice(list(value))
        return {**value, key: mutated(value[key], r, depth + 1)}
    if isinstance(value, list) and value:
        i = r.randrange(len(value))
        return [*value[:i], mutated(value[i], r, depth + 1), *value[i + 1 :]]
    if isinstance(value, str) and value:
        i = r.randrange(len(value))
        return value[:i] + r.choice(WORDS) + value[i + r.randrange(3) :]
    return r.choice(VALUES)


def text(r):
    """Words of the language of dimensions in any order."""
    return "".join(r.choice(WORDS) + r.choice(["", " "]) for _ in range(r.choice([1, 3, 8, 20])))


def check(data):
    """Read an artifact and all of its derivatives; only the one error is allowed."""
    try:
        found = deserialize(data)
        while found.has_vjp():
            found = found.vjp()
    except ArtifactError:
        pass


def check_text(words):
    """Read a text as a shape and as a constraint."""
    for read in (symbolic_shape, lambda t: SymbolicScope([t])):
        try:
            read(words)
        except (ValueError, ZeroDivisionError):
            pass


def main(seconds, seed):
    """Fuzz for a while; the number of inputs tried, and of findings."""
    r = random.Random(seed)
    corpus = [path.read_bytes() for path in sorted(DATA.glob("*.phalanx"))]
    parts = [split(memoryview(data)) for data in corpus]
    started, tried, findings = time.monotonic(), 0, 0
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    while time.monotonic() - started < seconds:
        kind = r.randrange(4)
        if kind == 0:
            data = damaged(r.choice(corpus), r)
        elif kind == 1:
            header, program, derivative = r.choice(parts)
            data = sealed(mutated(header, r), program, derivative)
        elif kind == 2:
            header, program, derivative = r.choice(parts)
            data = sealed(damaged(json.dumps(header).encode(), r), program, derivative)
        else:
            data = text(r)
        begun, problem = time.monotonic(), None
        faulthandler.dump_traceback_later(15, exit=True)
        try:
            check_text(data) if kind == 3 else check(data)
        except Exception as error:  # whatever it is, it is a finding
            problem = f"{type(error).__name__}: {error}"
        if time.monotonic() - begun > SLOW:
            problem = f"{time.monotonic() - begun:.1f} s"
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - base > MEMORY:
            problem, base = "memory", base + MEMORY
        tried += 1
        if problem:
            findings += 1
            name = hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:16]
            print(f"{name}: {problem[:300]}\n  {data!r:.300}", flush=True)
            if isinstance(data, bytes):
                (DATA / "findings").mkdir(exist_ok=True)
                (DATA / "findings" / name).write_bytes(data)
    print(f"{tried} inputs, {findings} findings, seed {seed}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 2**32))
