"""Fuzzing of everything that reads exported programs: `make fuzz`, or `python -m tests.export.fuzz SECONDS [SEED]`.

Five things are tried, each with inputs that Hypothesis draws, and the first two also with inputs that atheris grows by the
coverage of the reader's own code (Linux on x86-64, Python 3.11 to 3.14; elsewhere Hypothesis has all the time): texts of
shapes and constraints; headers, as text and as data, under a digest that agrees; the equations that an artifact records, with
parts exchanged; whole artifacts, damaged; and StableHLO, damaged under a digest that agrees, which `verify` hands to a
child process. A reader must answer each with what it reads or
the one error it is for, quickly, in memory that is in proportion to the input. Seconds are of CPU time.

What is taken badly is written to tests/data/export/findings/, where `test_corpus.py` keeps it.
"""

import functools
import hashlib
import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from tests.export.corpus import DATA
from tests.export.test_equation_records import recorded_equations

from phalanx.core import Eqn, Var, get_aval, infer_results
from phalanx.export import ArtifactError, SymbolicScope, deserialize, symbolic_shape, verify
from phalanx.export.artifact_format import MAGIC, VERSION, split_artifact
from phalanx.export.equation_records import read_equation, write_equation
from phalanx.export.type_serialization import read_aval, write_aval

FINDINGS = DATA / "findings"
SLOW = 5.0  # seconds of CPU that one input may take
MEMORY = 2 << 30  # bytes by which one input may make the process grow
ROUND = 400  # inputs that Hypothesis draws at a time
WORDS = "a b n floordiv mod max min non_negative ( ) , + - * ^ // % == >= <= > < 0 1 2 7 999999999 _ ... ² x1".split(
    " "
)
CORPUS = [path.read_bytes() for path in sorted(DATA.glob("*.phalanx"))]
PARTS = [split_artifact(memoryview(data)) for data in CORPUS]


def sealed(header, program=b"", derivative=b""):
    """An artifact of these parts with a digest that agrees."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    head = struct.pack("<8sIIQQ", MAGIC, VERSION, len(text), len(program), len(derivative))
    data = head + text + bytes(program) + bytes(derivative)
    return data + hashlib.sha256(data).digest()


def check_artifact(data):
    """Read an artifact and all of its derivatives; only the one error is allowed."""
    try:
        found = deserialize(data)
        while found.has_vjp():
            found = found.vjp()
    except ArtifactError:
        pass


def check_text(data):
    """Read a text as a shape and as a constraint."""
    words = data.decode(errors="replace")
    for read in (symbolic_shape, lambda t: SymbolicScope([t])):
        try:
            read(words)
        except (ValueError, ZeroDivisionError):
            pass


def check_equation(data):
    """Read an equation whose operands and results have the types that are written with it."""
    ins, outs, text = json.loads(data)
    in_avals, out_avals = ([read_aval(a, symbolic_shape) for a in avals] for avals in (ins, outs))
    found = read_equation(text, in_avals, out_avals)
    assert found is None or (hash(tuple(found.params.items())), str(found.params))


@functools.cache
def records():
    """For each equation of which artifacts have records the types of operands and results, and the record."""
    found = []
    for case in recorded_equations():
        avals = tuple(map(get_aval, case.args))
        outs = infer_results(case.primitive, avals, case.params)
        text = write_equation(Eqn(case.primitive, list(map(Var, avals)), list(map(Var, outs)), case.params, None))
        if text is not None:
            found.append((list(map(write_aval, avals)), list(map(write_aval, outs)), json.loads(text)))
    return found


def check_stranger(data):
    """Read an artifact as one that a stranger wrote, its programs too."""
    try:
        verify(data, seconds=5)
    except ArtifactError:
        pass


def around(text):
    """A header around an artifact's parts, which its first byte chooses."""
    _, program, derivative = PARTS[text[0] % len(PARTS)] if text else PARTS[0]
    return sealed(text[1:], program, derivative)


# ---- What Hypothesis draws


edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "set", "cut", "drop", "repeat"]), st.integers(0, 255))
)


def damaged(data, changes):
    """The bytes with some of them changed, cut off or repeated."""
    data = bytearray(data)
    for place, kind, amount in changes:
        at = int(place * (len(data) - 1)) if data else 0
        match kind:
            case "flip" if data:
                data[at] ^= 1 << amount % 8
            case "set" if data:
                data[at] = amount
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + amount]
            case "repeat":
                data[at:at] = data[at : at + amount]
    return bytes(data)


words = st.lists(st.sampled_from([*WORDS, " "]), max_size=24).map("".join)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=8),
        words,
        words.map("float32[{}]".format),
        st.sampled_from(["*", "b", "float32[b]", "key<rbg>[]", "~int32[]", "tuple", "dict", "node", "parts", "held"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@st.composite
def changed(draw, value):
    """JSON data with one of its parts replaced."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 5)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        copy = value.copy()
        copy[key] = draw(changed(value[key]))
        return copy
    if isinstance(value, str) and value and draw(st.booleans()):
        i = draw(st.integers(0, len(value) - 1))
        return value[:i] + draw(st.sampled_from(WORDS)) + value[i + draw(st.integers(0, 2)) :]
    return draw(json_values)


parts = st.sampled_from(PARTS)
headers = parts.flatmap(lambda p: changed(p[0]).map(lambda header: sealed(header, *p[1:])))
header_texts = st.builds(lambda p, e: sealed(damaged(json.dumps(p[0]).encode(), e), *p[1:]), parts, edits)
artifacts = st.builds(damaged, st.sampled_from(CORPUS), edits)
equations = st.deferred(lambda: st.sampled_from(records())).flatmap(
    lambda r: changed(r[2]).map(lambda record: json.dumps([*r[:2], json.dumps(record)]).encode())
)
programs = st.builds(lambda p, e: sealed(p[0], damaged(p[1], e)), parts, edits)


class Target(NamedTuple):
    """Something that is fuzzed.

    check: takes an input; any exception that it raises is a finding.
    inputs: the strategy of inputs.
    share: of Hypothesis's time.
    grown: makes an input of bytes that atheris grew, None where it has no part.
    seeds: what these grow from.
    suffix: of the names of findings.
    """

    check: Callable
    inputs: st.SearchStrategy
    share: float
    grown: Callable | None = None
    seeds: tuple = ()
    suffix: str = ".phalanx"


TARGETS = {
    "texts": Target(
        check_text,
        words.map(str.encode),
        0.25,
        bytes,
        (b"a, 2*b + 1", b"mod(b, 3) >= floordiv(a, 2) - max(a, b)^2", b"_, ...", b"non_negative(a - b) == 0"),
        ".txt",
    ),
    "headers": Target(
        check_artifact,
        st.one_of(headers, header_texts),
        0.35,
        around,
        tuple(bytes([i]) + json.dumps(header).encode() for i, (header, *_) in enumerate(PARTS)),
    ),
    "equations": Target(check_equation, equations, 0.1, suffix=".json"),
    "artifacts": Target(check_artifact, artifacts, 0.1),
    "programs": Target(check_stranger, programs, 0.2),
}


# ---- Running


def cpu_seconds():
    """What this process and those it started have spent."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def grown_bytes():
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def checked(target, data):
    """Check one input, its time and its memory."""
    begun, held = time.process_time(), grown_bytes()
    target.check(data)
    assert time.process_time() - begun < SLOW, f"{time.process_time() - begun:.1f} s"
    assert grown_bytes() - held < MEMORY, f"{grown_bytes() - held} bytes"


def keep(target, data, problem):
    """Write a finding where the tests read it; its path, which is the same however often it is found."""
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / (hashlib.sha256(data).hexdigest()[:16] + target.suffix)
    path.write_bytes(data)
    print(f"  {path.name}: {problem}\n  {data!r:.300}", flush=True)
    return path


def rounds_for(seconds):
    """One round after another until so much CPU time is spent."""
    end = cpu_seconds() + seconds
    while cpu_seconds() < end:
        yield


def draw(target, rounds, first_seed):
    """Let Hypothesis draw inputs, ROUND of them for each of `rounds`; the number of them, and of findings."""
    tried, findings, last = 0, set(), b""
    for _ in rounds:

        @seed(first_seed + tried)
        @settings(
            max_examples=ROUND if target.check is not check_stranger else 20,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs)
        def one(data):
            nonlocal tried, last
            tried, last = tried + 1, data
            checked(target, data)

        try:
            one()
        except Exception as error:  # whatever it is, it is a finding, and what came last is the least such input
            findings.add(keep(target, last, f"{type(error).__name__}: {error}"[:300]))
    return tried, len(findings)


def grow(name, seconds, first_seed):
    """Let atheris grow inputs for a while; the number of them, and of findings."""
    target, tried, findings = TARGETS[name], 0, set()
    with tempfile.TemporaryDirectory() as folder:
        corpus, crashes = Path(folder, "corpus"), Path(folder, "crashes")
        for place in (corpus, crashes):
            place.mkdir()
        for i, data in enumerate(target.seeds):
            (corpus / f"seed{i}").write_bytes(data)
        (Path(folder) / "words").write_text("".join(f'"{w}"\n' for w in WORDS if w.isascii()))
        options = {"artifact_prefix": f"{crashes}/", "dict": f"{folder}/words", "timeout": 60, "max_len": 8192}
        options |= {"rss_limit_mb": 4096, "report_slow_units": 30, "print_final_stats": 1, "verbosity": 0}
        end = cpu_seconds() + seconds
        while (left := end - cpu_seconds()) > 1:
            options |= {"max_total_time": int(left) + 1, "seed": first_seed % 2**31 + tried + 1}
            command = [
                sys.executable,
                "-m",
                "tests.export.grow",
                name,
                *(f"-{k}={v}" for k, v in options.items()),
                corpus,
            ]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
            stats = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
            tried += int(stats[-1].split()[-1]) if stats else 0
            for crash in crashes.iterdir():
                findings.add(keep(target, target.grown(crash.read_bytes()), "\n".join(done.stderr.splitlines()[-12:])))
                crash.unlink()
            if not stats and not findings:
                raise RuntimeError(f"atheris did not run:\n{done.stderr[-2000:]}")
        print(f"  {len(list(corpus.iterdir()))} inputs of their own coverage", flush=True)
    return tried, len(findings)


def main(seconds, first_seed):
    """Fuzz for a while; 1 if there were findings."""
    has_atheris = find_spec("atheris") is not None
    if not has_atheris:
        print("atheris is not installed (there are wheels for Linux on x86-64, Python 3.11 to 3.14): Hypothesis alone")
    bad = 0
    for name, target in TARGETS.items():
        share = target.share * (0.5 if has_atheris else 1)
        runs = [("Hypothesis", lambda s, t=target: draw(t, rounds_for(s), first_seed), seconds * share)]
        if has_atheris and target.grown:
            runs.append(("atheris", lambda s, n=name: grow(n, s, first_seed), seconds * 0.25))
        for engine, run, time_given in runs:
            begun = cpu_seconds()
            tried, findings = run(time_given)
            bad += findings
            spent = cpu_seconds() - begun
            print(f"{name}, {engine}: {tried:,} inputs in {spent:.0f} s of CPU, {findings} findings", flush=True)
    print(f"{cpu_seconds():.0f} s of CPU, {bad} findings, seed {first_seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 2**32))
