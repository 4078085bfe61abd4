"""asyncio: timers, sockets, processes, threads and signals of one loop."""

import asyncio
import os
import signal

from given import MODE, Busy, burn, chosen, descriptors, rounds


async def echoes(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


async def asks(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for text in range(number):
        writer.write(f"line {text}\n".encode())
        found.append(await reader.readline())
        await asyncio.to_thread(burn, 0.001)
    writer.close()
    await writer.wait_closed()
    return len(found), found[-1]


async def main():
    seen = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGURG, seen.append, 1)
    server = await asyncio.start_server(echoes, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(await asyncio.gather(*[asks(port, chosen.randrange(1, rounds(20) + 2)) for _ in range(8)]))
    for number in range(rounds(20)):
        os.kill(os.getpid(), signal.SIGURG)
        while len(seen) <= number:
            await asyncio.sleep(0.001)
    process = await asyncio.create_subprocess_exec("sh", "-c", "echo out; exit 4", stdout=asyncio.subprocess.PIPE)
    print(await process.communicate(), process.returncode)
    server.close()
    loop.remove_signal_handler(signal.SIGURG)
    print(len(seen), MODE)


busy = Busy(1)
asyncio.run(main())
busy.end()
print(len(descriptors()) < 16)
