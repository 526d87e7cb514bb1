"""A line between HERE and THERE, each an ADDRESS:PORT, on which every byte travels for MILLISECONDS."""
import asyncio
import sys


def endpoint(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


here, there = endpoint(sys.argv[1]), endpoint(sys.argv[2])
delay = int(sys.argv[3]) / 1000


async def carry(reader, writer):
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


async def connect(reader, writer):
    far_reader, far_writer = await asyncio.open_connection(*there)
    await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))


async def main():
    server = await asyncio.start_server(connect, *here)
    print("open", flush=True)
    await server.serve_forever()


asyncio.run(main())
