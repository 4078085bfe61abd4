"""Two processes by multiprocessing, in the way its argument names; or by subprocess."""

import multiprocessing
import subprocess
import sys

from facts import work


def child(number):
    work(10 + number)


if __name__ == "__main__":
    work(100)
    if sys.argv[1] == "subprocess":
        code = "from facts import work; work(11); print('child')"
        done = subprocess.run([sys.executable, "-c", code], cwd=sys.path[0], capture_output=True, check=False)
        print(done)
    else:
        context = multiprocessing.get_context(sys.argv[1])
        children = [context.Process(target=child, args=(number,)) for number in range(2)]
        for process in children:
            process.start()
        for process in children:
            process.join()
            print(process.exitcode)
