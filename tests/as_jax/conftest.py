"""The programs are run by the tests in processes of their own, and are no tests themselves."""

collect_ignore = ["programs"]
