"""Names under which programs of the field import things that have since moved."""

from phalanx.lax.callback import io_callback as io_callback
