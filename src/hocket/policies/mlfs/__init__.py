"""MLFS: tasks of partitioned models, ordered by what they bring and placed one by one."""
