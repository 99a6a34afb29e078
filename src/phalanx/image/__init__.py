"""Image resampling: `resize` and `scale_and_translate`. Builds on `numpy` and `lax`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.image.resampling import (
    ResizeMethod as ResizeMethod,
    resize as resize,
    scale_and_translate as scale_and_translate,
)

__getattr__, __dir__ = _publish(globals())
