"""What libraries that work on programs themselves import: `extend.core`."""

from phalanx.extend import core as core
