"""Questions across the ranks of a job: each rank is made one small table, and what crosses ranks is
asked of all of them together, as expressions of Ibis that run on DuckDB or on Spark.

Expressions use whole numbers and divisions of two of them, so the answers are the same.
"""
