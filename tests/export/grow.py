"""One target of `fuzz` under atheris: `python -m tests.export.grow TARGET LIBFUZZER-OPTIONS`, which `fuzz.grow` starts.

A module of its own, for what is to be covered must be imported under atheris's eyes.
"""

import sys


def main():
    """Grow inputs until libFuzzer's own limits end it."""
    import atheris

    with atheris.instrument_imports(include=["phalanx.export", "phalanx.symbolic"]):
        from tests.export.fuzz import TARGETS, checked

    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: checked(target, target.grown(data)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
