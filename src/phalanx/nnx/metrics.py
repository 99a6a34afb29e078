"""Metrics: statistics over many batches, kept in variables so that compiled functions can update them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib import split_merge
from phalanx.nnx.objects import Pytree
from phalanx.nnx.variable import Variable
from phalanx.tree import register_dataclass
from phalanx.typing import Array, ArrayLike


class MetricState(Variable):
    """A part of the state of a metric."""


class Metric(Pytree):
    """The base class of metrics, with the methods `reset()`, `update(**kwargs)` and `compute()`.

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
        """Discard all updates.

        Raises:
          NotImplementedError: the class does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__}.reset")

    def update(self, **kwargs: Any) -> None:
        """Add the values of a batch.

        Args:
          **kwargs: the values.

        Raises:
          NotImplementedError: the class does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def compute(self) -> Any:
        """Return the value of the metric over all updates.

        Returns:
          The value.

        Raises:
          NotImplementedError: the class does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__}.compute")

    def split(self, *filters: Filter) -> tuple:
        """Return the structure and the state of the metric, as `nnx.split` does.

        Args:
          *filters: as in `nnx.split`.

        Returns:
          `(graphdef, state, ...)`.
        """
        return split_merge.split(self, *filters)


def _get_values(metric: Metric, argname: str, kwargs: Mapping[str, ArrayLike]) -> Array:
    if argname not in kwargs:
        name = f"nnx.metrics.{type(metric).__name__}"
        raise ArgumentTypeError(
            f"{name}.update",
            expected=f"the keyword argument {argname!r}",
            got=sorted(kwargs),
            fix=f"pass {argname}=values, or create the metric with the name that you pass: {name}('name')",
        )
    return jnp.asarray(kwargs[argname])


class Average(Metric):
    """The mean of all values over many batches.

    Args:
      argname: the keyword argument of `update` for the values.

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
        self.total, self.count = MetricState(None), MetricState(None)
        Average.reset(self)

    def reset(self) -> None:
        """Discard all values."""
        self.total.value = jnp.zeros((), np.float32)
        self.count.value = jnp.zeros((), np.int32)

    def update(self, mask: ArrayLike | None = None, **kwargs: ArrayLike) -> None:  # type: ignore[override]
        """Add values.

        Args:
          mask: whether to use each value; None for all.
          **kwargs: the values, as the keyword argument `argname`; other arguments are ignored.

        Raises:
          ArgumentTypeError: the values are missing.
        """
        values = _get_values(self, self.argname, kwargs)
        if mask is None:
            count: Any = values.size
        else:
            mask = jnp.broadcast_to(jnp.asarray(mask, bool), values.shape)
            # `where` instead of a product: a masked value may be NaN.
            values, count = jnp.where(mask, values, 0), mask.sum()
        self.total.value += values.astype(np.float32).sum() if values.ndim else values.astype(np.float32)
        # An integer: a float32 count would stop increasing at 2**24.
        self.count.value += jnp.asarray(count, np.int32)

    def compute(self) -> Array:
        """Return the mean: f32[], NaN before the first value."""
        return self.total.value / self.count.value


class Accuracy(Average):
    """The fraction of correct predictions.

    Args:
      threshold: for two classes, the threshold above which a logit predicts class 1; None to predict the class of the
        largest logit.

    Raises:
      ArgumentTypeError: the threshold is not a number.

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
            raise ArgumentTypeError(
                "nnx.metrics.Accuracy, argument threshold",
                expected="a number, or None",
                got=repr(threshold),
                fix="pass 0.5 for probabilities of class 1, or 0.0 for logits",
            )
        self.threshold = threshold
        super().__init__()

    def update(self, *, logits: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None, **_: object) -> None:  # type: ignore[override]
        """Add predictions.

        Args:
          logits: real[*batch, classes], or with a threshold real[*batch].
          labels: int[*batch].
          mask: whether to use each prediction; None for all.
          **_: arguments of other metrics in a `MultiMetric`.

        Raises:
          ShapeError: the shapes of logits and labels do not match.
          DTypeError: the labels are not integers.
        """
        logits, labels = jnp.asarray(logits), jnp.asarray(labels)
        has_classes = self.threshold is None
        if logits.ndim != labels.ndim + has_classes or logits.shape[: labels.ndim] != labels.shape:
            raise ShapeError(
                "nnx.metrics.Accuracy.update",
                expected="logits of the labels' shape" + (" with classes as last dimension" if has_classes else ""),
                got=f"logits of shape {tuple(logits.shape)}, labels of shape {tuple(labels.shape)}",
                fix="pass labels as class numbers, not as one-hot vectors: labels.argmax(-1)"
                if has_classes
                else "pass one logit for each label",
            )
        if not jnp.issubdtype(labels.dtype, jnp.integer) and labels.dtype != bool:
            raise DTypeError(
                "nnx.metrics.Accuracy.update, argument labels",
                expected="integers",
                got=labels.dtype.name,
                fix="pass labels.astype('int32')",
            )
        predicted = logits.argmax(-1) if has_classes else (logits > self.threshold).astype(np.int32)
        super().update(values=predicted == labels, mask=mask)


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Statistics:
    """The result of `Welford.compute`.

    Args:
      mean: the mean.
      standard_error_of_mean: its standard error.
      standard_deviation: the standard deviation.
    """

    mean: Array
    standard_error_of_mean: Array
    standard_deviation: Array


class Welford(Metric):
    """The mean and standard deviation of all values, by an algorithm that avoids cancellation.

    Args:
      argname: the keyword argument of `update` for the values.

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
        # The sum of squared deviations from the mean is updated instead of a sum of squares, which would cancel.
        self.count, self.mean, self.m2 = MetricState(None), MetricState(None), MetricState(None)
        Welford.reset(self)

    def reset(self) -> None:
        """Discard all values."""
        self.count.value = jnp.zeros((), np.int32)
        self.mean.value = self.m2.value = jnp.zeros((), np.float32)

    def update(self, **kwargs: ArrayLike) -> None:
        """Add values.

        Args:
          **kwargs: the values, as the keyword argument `argname`; other arguments are ignored.

        Raises:
          ArgumentTypeError: the values are missing.
        """
        values = _get_values(self, self.argname, kwargs).astype(np.float32)
        old, size = self.count.value, values.size
        count, mean = old + size, values.mean()
        # Merges two sets of values, the previous ones and this batch (Chan, Golub and LeVeque).
        delta = mean - self.mean.value
        self.m2.value += jnp.square(values - mean).sum() + delta * delta * size * old / count
        self.mean.value += delta * size / count
        self.count.value = count

    def compute(self) -> Statistics:
        """Return the statistics of all values."""
        count = self.count.value
        # The population standard deviation, as in Flax; the sample deviation would divide by count - 1.
        deviation = jnp.sqrt(self.m2.value / count)
        return Statistics(self.mean.value, deviation / jnp.sqrt(count), deviation)


class MultiMetric(Metric):
    """Several metrics that are updated with the same arguments.

    Args:
      **metrics: metrics by name.

    Raises:
      ArgumentError: a name is the name of a method.
      ArgumentTypeError: a value is not a metric.

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
                raise ArgumentError(
                    "nnx.MultiMetric",
                    expected="names that are not names of its methods",
                    got=name,
                    fix=f"choose another name, such as {name}_metric",
                )
            if not all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
                raise ArgumentTypeError(
                    f"nnx.MultiMetric, argument {name}",
                    expected="a metric",
                    got=f"{metric!r} of type {type(metric).__name__}",
                    fix=f"pass a metric such as {name}=nnx.metrics.Average({name!r})",
                )
            setattr(self, name, metric)

    def reset(self) -> None:
        """Reset all metrics."""
        for name in self._metric_names:
            getattr(self, name).reset()

    def update(self, **updates: Any) -> None:
        """Update all metrics; each receives all arguments.

        Args:
          **updates: the arguments. `mask` may be a dictionary of masks by the names of metrics; metrics that it does
            not name use all values.
        """
        masks = updates.pop("mask", None)
        if not isinstance(masks, Mapping):
            masks = dict.fromkeys(self._metric_names, masks)
        for name in self._metric_names:
            mask = masks.get(name)
            getattr(self, name).update(**updates, **({} if mask is None else {"mask": mask}))

    def compute(self) -> dict[str, Any]:
        """Return the values of all metrics.

        Returns:
          A dictionary of values by name.
        """
        return {name: getattr(self, name).compute() for name in self._metric_names}
