"""Checks for tests of user programs: derivatives against numerical differences, and communication."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.testing.assert_collectives import (
    Collective as Collective,
    Collectives as Collectives,
    CommunicationError as CommunicationError,
    assert_collectives as assert_collectives,
    collectives as collectives,
)

__getattr__, __dir__ = _publish(globals())
