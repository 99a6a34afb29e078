"""Images: resized, scaled and moved. Builds on `numpy` and `lax`."""

from phalanx.engine.frames import guard as _guard
from phalanx.image.resampling import ResizeMethod as ResizeMethod
from phalanx.image.resampling import resize as resize
from phalanx.image.resampling import scale_and_translate as scale_and_translate

_guard(globals())
