"""Source files that are no modules of the package: examples, and the scripts that generate pages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"


def load_file(path: Path) -> ModuleType:
    """Run a source file as a module with the name of the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
