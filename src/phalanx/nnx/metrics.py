"""Metrics: averages over many batches that live in variables, so that compiled functions can advance them.

Builds on `objects`; training and evaluation loops call it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from phalanx.nnx import functional
from phalanx.nnx.filters import Filter
from phalanx.nnx.objects import Object
from phalanx.nnx.variable import Variable
from phalanx.tree import register_dataclass


class MetricState(Variable):
    """A part of a metric."""


class Metric(Object):
    """The base of metrics: `reset()`, `update(**kwargs)` and `compute()`.

    Examples:
      >>> from phalanx import nnx
      >>> metric = nnx.metrics.Average()
      >>> isinstance(metric, nnx.Metric)
      True
      >>> metric.update(values=4.0)
      >>> float(metric.compute())
      4.0
    """

    def reset(self) -> None:
        """Forget all updates.

        Raises:
          NotImplementedError: the metric does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__}.reset")

    def update(self, **kwargs: Any) -> None:
        """Take a batch.

        Args:
          **kwargs: what the metric is of.

        Raises:
          NotImplementedError: the metric does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def compute(self) -> Any:
        """The value so far.

        Returns:
          The value.

        Raises:
          NotImplementedError: the metric does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__}.compute")

    def split(self, *filters: Filter) -> tuple:
        """The structure and the state; as `nnx.split`.

        Args:
          *filters: as in `nnx.split`.

        Returns:
          `(graphdef, state, ...)`.
        """
        return functional.split(self, *filters)


def _given(metric: Metric, argname: str, kwargs: dict) -> Any:
    if argname not in kwargs:
        raise ArgumentTypeError(
            f"nnx.metrics.{type(metric).__name__}.update", expected=f"the keyword argument {argname!r}",
            got=sorted(kwargs), mend=f"pass it, or make the metric with the name that you pass: "
            f"nnx.metrics.{type(metric).__name__}('name')",
        )  # fmt: skip
    return jnp.asarray(kwargs[argname])


class Average(Metric):
    """The mean of all values.

    Args:
      argname: the keyword argument of `update` that has the values.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> loss = nnx.metrics.Average("loss")
      >>> loss.update(loss=jnp.array([1.0, 2.0]))
      >>> loss.update(loss=6.0)
      >>> float(loss.compute())
      3.0
    """

    def __init__(self, argname: str = "values"):
        self.argname = argname
        self.total = MetricState(jnp.zeros((), np.float32))
        self.count = MetricState(jnp.zeros((), np.int32))

    def reset(self) -> None:
        """Forget all values."""
        self.total.value = jnp.zeros((), np.float32)
        self.count.value = jnp.zeros((), np.int32)

    def update(self, mask: Any = None, **kwargs: Any) -> None:  # type: ignore[override]
        """Take values.

        Args:
          mask: which of them count.
          **kwargs: the values, under the metric's `argname`; all others are not read.

        Raises:
          ArgumentTypeError: the values are missing.
        """
        values = _given(self, self.argname, kwargs)
        if mask is None:
            number: Any = values.size
        else:
            mask = jnp.broadcast_to(jnp.asarray(mask, bool), values.shape)
            values, number = jnp.where(mask, values, 0), mask.sum()
        self.total.value += values.astype(np.float32).sum() if values.ndim else values.astype(np.float32)
        self.count.value += jnp.asarray(number, np.int32)

    def compute(self) -> Any:
        """The mean: f32[], NaN before the first value."""
        return self.total.value / self.count.value


class Accuracy(Average):
    """The part of predictions that are right.

    Args:
      threshold: logits above it mean class 1 of two; None for more classes, of which the largest logit counts.

    Raises:
      ArgumentTypeError: the threshold is no number.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> accuracy = nnx.metrics.Accuracy()
      >>> accuracy.update(logits=jnp.eye(4), labels=jnp.array([0, 1, 2, 0]))
      >>> float(accuracy.compute())
      0.75
    """

    def __init__(self, threshold: float | None = None):
        if threshold is not None and not isinstance(threshold, int | float):
            raise ArgumentTypeError("nnx.metrics.Accuracy, argument threshold", expected="a number, or None",
                                    got=repr(threshold), mend="pass 0.5")  # fmt: skip
        super().__init__()
        self.threshold = threshold

    def update(self, *, logits: Any, labels: Any, mask: Any = None, **_: Any) -> None:  # type: ignore[override]
        """Take predictions.

        Args:
          logits: real[*batch, classes], or with a threshold real[*batch].
          labels: int[*batch].
          mask: which of them count.
          **_: what other metrics read.

        Raises:
          ShapeError: logits and labels do not fit.
          DTypeError: the labels are not integers.
        """
        logits, labels = jnp.asarray(logits), jnp.asarray(labels)
        classes = self.threshold is None
        if logits.ndim != labels.ndim + classes or logits.shape[: labels.ndim] != labels.shape:
            raise ShapeError(
                "nnx.metrics.Accuracy.update", expected="logits of the labels' shape"
                + (", and classes as the last dimension" if classes else ""),
                got=f"logits of shape {tuple(logits.shape)}, labels of shape {tuple(labels.shape)}",
                mend="pass classes by number, not as one-hot vectors" if classes else "pass one logit for each label",
            )  # fmt: skip
        if not jnp.issubdtype(labels.dtype, jnp.integer) and labels.dtype != bool:
            raise DTypeError("nnx.metrics.Accuracy.update, argument labels", expected="integers",
                             got=labels.dtype.name, mend="convert them")  # fmt: skip
        predicted = logits.argmax(-1) if classes else (logits > self.threshold).astype(np.int32)
        super().update(values=predicted == labels, mask=mask)


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Statistics:
    """What `Welford` computes.

    Args:
      mean: the mean.
      standard_error_of_mean: its standard error.
      standard_deviation: the standard deviation.
    """

    mean: Any
    standard_error_of_mean: Any
    standard_deviation: Any


class Welford(Metric):
    """Mean and standard deviation of all values, without cancellation.

    Args:
      argname: the keyword argument of `update` that has the values.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> values = nnx.metrics.Welford()
      >>> values.update(values=jnp.array([1.0, 3.0]))
      >>> float(values.compute().mean), float(values.compute().standard_deviation)
      (2.0, 1.0)

    Source: T. F. Chan, G. H. Golub and R. J. LeVeque (1983), doi:10.1080/00031305.1983.10483115.
    """

    def __init__(self, argname: str = "values"):
        self.argname = argname
        self.count = MetricState(jnp.zeros((), np.int32))
        self.mean = MetricState(jnp.zeros((), np.float32))
        self.m2 = MetricState(jnp.zeros((), np.float32))

    def reset(self) -> None:
        """Forget all values."""
        self.count.value = jnp.zeros((), np.int32)
        self.mean.value = self.m2.value = jnp.zeros((), np.float32)

    def update(self, **kwargs: Any) -> None:
        """Take values.

        Args:
          **kwargs: the values, under the metric's `argname`; all others are not read.

        Raises:
          ArgumentTypeError: the values are missing.
        """
        values = _given(self, self.argname, kwargs).astype(np.float32)
        old, size = self.count.value, values.size
        count, mean = old + size, values.mean()
        delta = mean - self.mean.value
        self.m2.value += jnp.square(values - mean).sum() + delta * delta * size * old / count
        self.mean.value += delta * size / count
        self.count.value = count

    def compute(self) -> Statistics:
        """The statistics so far."""
        count = self.count.value
        deviation = jnp.sqrt(self.m2.value / count)
        return Statistics(self.mean.value, deviation / jnp.sqrt(count), deviation)


class MultiMetric(Metric):
    """Several metrics that are updated together.

    Args:
      **metrics: metrics by name.

    Raises:
      ArgumentError: a name is that of a method.
      ArgumentTypeError: a value is no metric.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
      >>> metrics.update(logits=jnp.eye(2), labels=jnp.array([0, 0]), loss=jnp.array([1.0, 2.0]))
      >>> {name: float(value) for name, value in metrics.compute().items()}
      {'accuracy': 0.5, 'loss': 1.5}
    """

    def __init__(self, **metrics: Metric):
        self._metric_names = tuple(metrics)
        for name, metric in metrics.items():
            if hasattr(type(self), name):
                raise ArgumentError("nnx.MultiMetric", expected="names that are not those of its methods", got=name,
                                    mend="choose another name")  # fmt: skip
            if not all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
                raise ArgumentTypeError(
                    f"nnx.MultiMetric, argument {name}", expected="a metric",
                    got=f"{metric!r} of type {type(metric).__name__}", mend="pass nnx.metrics.Average()",
                )  # fmt: skip
            setattr(self, name, metric)

    def reset(self) -> None:
        """Reset all."""
        for name in self._metric_names:
            getattr(self, name).reset()

    def update(self, **updates: Any) -> None:
        """Update all, each with all of the arguments.

        Args:
          **updates: what the metrics are of.
        """
        for name in self._metric_names:
            getattr(self, name).update(**updates)

    def compute(self) -> dict[str, Any]:
        """The values so far, by name.

        Returns:
          A dict of them.
        """
        return {name: getattr(self, name).compute() for name in self._metric_names}
