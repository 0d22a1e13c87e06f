"""The processes of a launcher, to do something to one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path


def process_of(rank: int, launcher: int) -> int:
    """Return the process of a rank, a child of its launcher, by its environment; on Linux.

    Raises:
        ProcessLookupError: there is none.
    """
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"\0RANK={rank}\0".encode() in Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
    raise ProcessLookupError(f"no process of rank {rank}")


def descendants_of(process: int) -> Iterator[int]:
    """Yield a process and all that it and they have started; on Linux."""
    yield process
    with suppress(OSError):  # it has ended
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                yield from descendants_of(child)


def open_to_others(process: int) -> list[str]:
    """Return the addresses at which other machines reach a process or its descendants; on Linux."""
    sockets = set()
    for one in descendants_of(process):
        for file in Path(f"/proc/{one}/fd").glob("*"):
            with suppress(OSError):  # it is closed
                sockets.add(str(file.readlink()))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            host, _, port = fields[1].partition(":")
            words = [bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8)]
            address = ip_address(b"".join(words))
            if isinstance(address, IPv6Address) and address.ipv4_mapped:
                address = address.ipv4_mapped
            is_listening = fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets
            if is_listening and not address.is_loopback:
                addresses.append(f"{address}:{int(port, 16)}")
    return addresses
