"""More than a pipe holds; the reader may leave early."""

from facts import work

work()
for i in range(200_000):
    print("line", i)
