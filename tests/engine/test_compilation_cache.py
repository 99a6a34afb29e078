import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from phalanx.experimental.compilation_cache import compilation_cache as public  # sets the cache when it is loaded
from tests.engine.programs import ADD_ONE, Aval, compiled, parse, put, run

from phalanx import config
from phalanx.engine import buffers, client, compilation_cache, compiler
from phalanx.engine.compilation_cache import CacheSettings, CompilationCacheError, CompilationCacheWarning


@pytest.fixture
def cache(tmp_path):
    """Configure a cache that keeps everything; gives a function that changes what is configured."""
    settings = CacheSettings(directory=str(tmp_path / "cache"), min_compile_seconds=0.0)
    current = [settings]

    def change(**changes):
        current[0] = current[0]._replace(**changes)
        return current[0]

    before = compilation_cache._State.settings
    compilation_cache.take_settings(lambda: current[0])
    yield change
    compilation_cache.take_settings(before)


def entries(cache):
    directory = cache().directory
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def works(executable):
    (result,) = run(executable, [put(np.arange(8, dtype="f4"))], [Aval((8,), "f4")])
    np.testing.assert_array_equal(buffers.to_host(result), np.arange(1, 9))


def counted(action):
    before = compilation_cache.counts()
    action()
    return {name: count - before[name] for name, count in compilation_cache.counts().items()}


def test_a_program_is_compiled_once_and_then_loaded(cache):
    assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 0, "misses": 1, "writes": 1}
    assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 1, "misses": 0, "writes": 0}
    assert len(entries(cache)) == 1


def test_another_process_loads_it_too(cache):
    code = f"""
from phalanx.engine import compilation_cache
from tests.engine.programs import ADD_ONE, compiled
compilation_cache.take_settings(lambda: compilation_cache.{cache()!r})
compiled(ADD_ONE)
print(compilation_cache.counts())
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    counts = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert counts == ["{'hits': 0, 'misses': 1, 'writes': 1}\n", "{'hits': 1, 'misses': 0, 'writes': 0}\n"]


def key(text=ADD_ONE, num_devices=1, **options):
    devices = client.devices("cpu")[:num_devices]
    return compilation_cache.make_key(parse(text), compiler.make_compile_options(devices, [True], options), devices)


def test_the_key_holds_what_the_machine_code_depends_on():
    others = [
        key(ADD_ONE.replace("1.0", "2.0")),
        key(ADD_ONE.replace("8", "9")),
        key(num_devices=2),
        key(xla_cpu_enable_fast_math=True),
    ]
    assert len({key(), *others}) == 5


def test_source_positions_do_not_count():
    here = ADD_ONE.replace("dense<1.0> : tensor<8xf32>", 'dense<1.0> : tensor<8xf32> loc("here.py":1:2)')
    assert here != ADD_ONE and key(here) == key()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda content: b"another file altogether",
    ],
    ids=["empty", "half", "last byte", "one bit", "other"],
)
def test_a_damaged_entry_is_ignored_with_one_warning_and_rewritten(cache, damage):
    compiled(ADD_ONE)
    (name,) = entries(cache)
    path = os.path.join(cache().directory, name)
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(damage(content))
    cache(min_compile_seconds=1000.0)  # It is rewritten although it compiles fast.
    with pytest.warns(CompilationCacheWarning) as warned:
        works(compiled(ADD_ONE))
    assert [str(w.message) for w in warned] == [
        f"compilation cache, entry {path}: expected the executable as it was written, "
        "got a file that was cut short or altered.\n"
        "  Fix: ignore a single warning, since the entry is rewritten; if it recurs, check the disk and its permissions."
    ]
    assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 1, "misses": 0, "writes": 0}


def test_an_entry_that_xla_cannot_load_is_rewritten(cache):
    compiled(ADD_ONE)
    (name,) = entries(cache)
    path = os.path.join(cache().directory, name)
    with open(path, "wb") as file:
        file.write(compilation_cache._encode(b"no executable", name.removesuffix(".phxc")))
    with pytest.warns(CompilationCacheWarning, match="one that XLA cannot load"):
        works(compiled(ADD_ONE))
    assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 1, "misses": 0, "writes": 0}


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_a_folder_that_cannot_exist_is_not_used(cache, name):
    cache(directory=os.path.join(cache().directory, name))
    with pytest.warns(CompilationCacheWarning, match="embedded null|'utf-8' codec"):
        works(compiled(ADD_ONE))


def test_an_entry_under_anothers_name_is_not_taken(cache):
    compiled(ADD_ONE)
    (name,) = entries(cache)
    other = ADD_ONE.replace("1.0", "2.0")
    compiled(other)
    (other_name,) = set(entries(cache)) - {name}
    directory = cache().directory
    os.replace(os.path.join(directory, other_name), os.path.join(directory, name))
    with pytest.warns(CompilationCacheWarning):
        works(compiled(ADD_ONE))


def test_errors_can_be_asked_for(cache):
    compiled(ADD_ONE)
    (name,) = entries(cache)
    with open(os.path.join(cache(raise_errors=True).directory, name), "wb"):
        pass
    with pytest.raises(CompilationCacheError, match="cut short or altered"):
        compiled(ADD_ONE)


def test_a_folder_that_cannot_be_written_to_is_a_warning(cache, tmp_path):
    (tmp_path / "file").write_text("")
    cache(directory=str(tmp_path / "file" / "cache"))
    with pytest.warns(CompilationCacheWarning):
        works(compiled(ADD_ONE))


def test_what_compiles_fast_or_is_small_is_not_stored(cache):
    cache(min_compile_seconds=1000.0)
    compiled(ADD_ONE)
    cache(min_compile_seconds=0.0, min_entry_bytes=1 << 30)
    compiled(ADD_ONE)
    assert entries(cache) == []


def test_the_entries_used_longest_ago_go_when_the_folder_is_full(cache):
    texts = [ADD_ONE.replace("1.0", f"{number}.0") for number in range(4)]
    for text in texts[:3]:
        compiled(text)
    names = entries(cache)
    size = sum(os.path.getsize(os.path.join(cache().directory, name)) for name in names) // 3
    for age, name in enumerate(sorted(names)):
        os.utime(os.path.join(cache().directory, name), (1000 - age, 1000 - age))
    cache(max_bytes=int(size * 2.5))
    compiled(texts[3])
    left = entries(cache)
    assert len(left) == 2 and sorted(names)[0] in left


def test_a_stale_half_written_file_goes_too(cache):
    compiled(ADD_ONE)
    stale = os.path.join(cache().directory, "0" * 64 + ".phxc.1.1.tmp")
    with open(stale, "wb") as file:
        file.write(b"half")
    os.utime(stale, (0, 0))
    cache(max_bytes=1 << 30)
    compiled(ADD_ONE.replace("1.0", "5.0"))
    assert not os.path.exists(stale)


def test_many_writers_at_once_lose_nothing(cache):
    code = f"""
import warnings; warnings.simplefilter("error")
from phalanx.engine import compilation_cache
from tests.engine.programs import ADD_ONE, compiled
compilation_cache.take_settings(lambda: compilation_cache.{cache()!r})
for number in range(20):
    compiled(ADD_ONE.replace("1.0", f"{{number}}.0"))
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0] * 3
    assert len(entries(cache)) == 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 1, "misses": 0, "writes": 0}


def test_a_crash_while_writing_leaves_the_old_entry(cache, monkeypatch):
    compiled(ADD_ONE)
    (name,) = entries(cache)

    def crash(source, destination):
        raise OSError("the plug was pulled")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.warns(CompilationCacheWarning, match="the plug was pulled"):
        compiled(ADD_ONE.replace("1.0", "3.0"))
    assert entries(cache) == [name]


def test_the_public_functions_set_the_folder_and_reset_the_counts(cache):
    before = config.compilation_cache_dir
    public.set_cache_dir("folder")
    try:
        assert config.compilation_cache_dir == "folder"
    finally:
        public.set_cache_dir(before)
    works(compiled(ADD_ONE))
    public.reset_cache()
    assert compilation_cache.counts() == {"hits": 0, "misses": 0, "writes": 0}
    assert counted(lambda: works(compiled(ADD_ONE)))["hits"] == 1  # the entry is still there


def test_a_folder_that_everyone_may_write_to_is_not_used(cache):
    compiled(ADD_ONE)
    directory = cache().directory
    os.chmod(directory, 0o777)
    with pytest.warns(CompilationCacheWarning) as warned:
        assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 0, "misses": 0, "writes": 0}
    assert [str(w.message) for w in warned] == [
        f"compilation cache, folder {directory}: expected one that only trusted users can write to, since its entries are "
        "executed, got the mode drwxrwxrwx, so it is not used.\n"
        f"  Fix: run chmod o-w {directory}, and remove entries that are not yours."
    ]
    os.chmod(directory, 0o775)
    assert counted(lambda: works(compiled(ADD_ONE))) == {"hits": 1, "misses": 0, "writes": 0}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink(f"{path}.target", path), os.mkdir])
def test_an_entry_that_is_no_file_is_neither_waited_for_nor_followed(cache, make):
    compiled(ADD_ONE)
    (name,) = entries(cache)
    path = os.path.join(cache().directory, name)
    os.rename(path, f"{path}.target")
    make(path)
    with pytest.warns(CompilationCacheWarning):
        assert counted(lambda: works(compiled(ADD_ONE)))["hits"] == 0


def test_entries_are_readable_by_their_owner_only(cache):
    before = os.umask(0)
    try:
        compiled(ADD_ONE)
    finally:
        os.umask(before)
    directory = cache().directory
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert [os.stat(os.path.join(directory, name)).st_mode & 0o777 for name in entries(cache)] == [0o600]


def test_an_entry_that_unpacks_to_far_more_than_its_size_is_refused():
    bomb = zlib.compress(bytes(10_000_000))
    head = compilation_cache._MAGIC + compilation_cache._digest("key", bomb)
    assert compilation_cache._decode(head + bomb, "key") is None
    # A payload of our own that compresses as well is stored as it is.
    assert compilation_cache._decode(compilation_cache._encode(bytes(1_000_000), "key"), "key") == bytes(1_000_000)
