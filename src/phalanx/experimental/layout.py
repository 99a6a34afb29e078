"""`Layout` and `Format` under the name by which programs of the field import them."""

from phalanx.sharding.layout import Format as Format
from phalanx.sharding.layout import Layout as Layout
