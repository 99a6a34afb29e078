"""`Layout` and `Format` under the name by which programs of the field import them."""

from phalanx.runtime.layout import Format as Format
from phalanx.runtime.layout import Layout as Layout
