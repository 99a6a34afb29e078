"""Fuzzing itself: what it found stays mended, it reaches every reader, and it would notice a bad one."""

import pytest
from tests.export import fuzz

KINDS = {".phalanx": fuzz.check_artifact, ".txt": fuzz.check_text, ".json": fuzz.check_equation}


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Tests run on machines far slower than one that fuzzes; what was slow once took minutes."""
    monkeypatch.setattr(fuzz, "SLOW", 60.0)


@pytest.mark.parametrize("path", sorted(fuzz.FINDINGS.iterdir()), ids=lambda path: path.name)
def test_earlier_findings_are_handled(path):
    fuzz.checked(fuzz.TARGETS["headers"]._replace(check=KINDS[path.suffix]), path.read_bytes())


@pytest.mark.parametrize("name", [name for name, t in fuzz.TARGETS.items() if t.check is not fuzz.check_stranger])
def test_every_reader_handles_generated_inputs(name, monkeypatch):
    monkeypatch.setattr(fuzz, "ROUND", 50)
    tried, findings = fuzz.draw(fuzz.TARGETS[name], range(1), 0)
    assert tried and not findings


def test_a_crashing_reader_is_detected(monkeypatch, tmp_path, capsys):
    def reader(data):
        assert b"max" not in data, "it cannot take max"

    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path / "findings")
    monkeypatch.setattr(fuzz, "ROUND", 2000)
    _, findings = fuzz.draw(fuzz.TARGETS["texts"]._replace(check=reader), range(3), 0)  # each finds the same
    assert findings == 1 and "it cannot take max" in capsys.readouterr().out
    (path,) = (tmp_path / "findings").iterdir()
    assert path.suffix == ".txt" and path.read_bytes() == b"max"  # the least that it cannot take


def test_a_slow_reader_is_detected(monkeypatch):
    monkeypatch.setattr(fuzz, "SLOW", 0.0)
    with pytest.raises(AssertionError, match=r"^\d+\.\d s"):
        fuzz.checked(fuzz.TARGETS["texts"], b"a, b")
