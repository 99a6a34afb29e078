"""Programs that import Ray, which is not installed with the other packages of the tests, are not collected."""

collect_ignore = ["ray_actors.py"]
