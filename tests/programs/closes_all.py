"""Closes every descriptor, goes on with operators, and writes into files of its own."""

import os
import sys
import threading

from facts import work

work()
os.closerange(int(sys.argv[1]), 4096)
numbers = []
with open("own.bin", "wb") as file:
    numbers.append(file.fileno())
    for i in range(50):
        thread = threading.Thread(target=work, args=(10,))  # a new thread: a new ring, if it has none to reuse
        thread.start()
        file.write(bytes([i]) * 1000)
        thread.join()
    second = os.open("second.txt", os.O_WRONLY | os.O_CREAT)
    numbers.append(second)
    os.write(second, repr(numbers).encode())
os._exit(0)
