"""Which steps stay when a new one has been saved: the last ones, every k-th, and the best by a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from phalanx.checkpoint.checkpoint_errors import CheckpointError, CheckpointSaveError
from phalanx.checkpoint.leaf_records import read_document
from phalanx.checkpoint.step_folders import Run
from phalanx.core import ArgumentError, ArgumentTypeError


@dataclass(frozen=True)
class Keep:
    """The steps to keep; a step stays if any of the rules keeps it, and the newest one always stays.

    Args:
      last: the number of newest steps to keep.
      every: keep the steps that are multiples of this number; None keeps none for this reason.
      best: the number of best steps to keep, by `metric`.
      metric: the name of a number in the `metadata` that the steps are saved with.
      mode: whether a metric is better if it is smaller ("min") or larger ("max").

    Raises:
      ArgumentError: a number is too small, or `best` is given without `metric`.

    Examples:
      >>> Keep(last=2, every=100, best=1, metric="loss").choose(
      ...     {98: 0.3, 99: 0.1, 100: 0.2, 101: 0.5, 102: 0.6}
      ... )
      {99, 100, 101, 102}
    """

    last: int = 1
    every: int | None = None
    best: int = 0
    metric: str | None = None
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        for name, least in (("last", 1), ("every", 1), ("best", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ArgumentError(
                    f"Keep, {name}", expected=f"an int of at least {least}", got=repr(value), fix=f"pass {name}={least}"
                )
        if bool(self.best) != (self.metric is not None):
            raise ArgumentError(
                "Keep, metric",
                expected="best and metric together",
                got=f"best={self.best}, metric={self.metric!r}",
                fix="pass Keep(best=1, metric='loss') and save(..., metadata={'loss': loss})",
            )
        if self.mode not in ("min", "max"):
            raise ArgumentError("Keep, mode", expected="'min' or 'max'", got=repr(self.mode), fix="pass mode='min'")

    def choose(self, metrics: dict[int, float | None]) -> set[int]:
        """Choose the steps to keep.

        Args:
          metrics: for each step its metric, or None if it was saved without one.

        Returns:
          The steps that stay.
        """
        steps = sorted(metrics)
        kept = set(steps[-self.last :])
        if self.every is not None:
            kept |= {step for step in steps if step % self.every == 0}
        sign = 1 if self.mode == "min" else -1
        # A NaN is not equal to itself, and is no good step.
        scored = [(sign * value, step) for step, value in metrics.items() if value is not None and value == value]
        return kept | {step for _, step in sorted(scored)[: self.best]}


def as_keep(keep: Keep | int | None, where: str) -> Keep | None:
    """The rules of an argument `keep`: a number is that of the newest steps to keep."""
    if keep is None or isinstance(keep, Keep):
        return keep
    if isinstance(keep, int) and not isinstance(keep, bool):
        return Keep(last=keep)
    raise ArgumentTypeError(
        f"{where}, keep", expected="a Keep, an int or None", got=repr(keep), fix="pass keep=3 for the last three steps"
    )


def apply_retention(run: Run, keep: Keep, newest: int) -> None:
    """Remove the steps that the rules do not keep.

    Args:
      run: the run, which is locked.
      keep: the rules.
      newest: the step that was saved last, which stays.

    Raises:
      CheckpointSaveError: steps could not be deleted; the others that the rules do not keep are.
    """
    metrics = {step: _read_metric(run, step, keep.metric) for step in run.list_own_steps()}
    failed: dict[int, Exception] = {}
    for step in sorted(metrics.keys() - keep.choose(metrics) - {newest}):
        try:
            run.remove(step)
        except (OSError, ValueError) as error:  # tensorstore reports errors of the system as ValueErrors.
            failed[step] = error
    if failed:
        error = next(iter(failed.values()))
        raise CheckpointSaveError(
            f"checkpoint.save, step {newest}, keep",
            expected=f"to delete from {run.location!r} the steps that are not kept, after step {newest} was committed",
            got=f"{type(error).__name__}: {error}, for {sorted(failed)}",
            fix=f"delete {sorted(failed)} by hand; step {newest} is saved and can be loaded",
        ) from error


def _read_metric(run: Run, step: int, metric: str | None) -> float | None:
    """The metric of a step, None if it has none or cannot be read."""
    if metric is None:
        return None
    try:
        user = read_document(run.read_document(step), f"save, step {step}").user
    except (CheckpointError, OSError):
        return None
    value = user.get(metric) if isinstance(user, dict) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
