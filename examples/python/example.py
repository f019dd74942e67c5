"""Thumbnails: work a route, and observe a topic, until Ctrl-C.

    waybill up                                  # in one terminal
    pip install nats-py && python example.py    # in another
"""

import asyncio
import json
import os
import signal

import waybill_worker as waybill


async def make_thumbnail(delivery):
    picture = json.loads(delivery.data)
    if "url" not in picture:
        raise waybill.Reject("there is no url")  # a dead letter at once
    if delivery.attempt < picture.get("works_at_try", 1):
        raise OSError(f"{picture['url']} does not answer")  # tried again, later and later
    print(f"made a thumbnail of {picture['url']} at try {delivery.attempt} of {delivery.max_retries}", flush=True)


async def count(delivery):
    print(f"one more upload: {delivery.data.decode()}", flush=True)


async def main():
    mesh = await waybill.connect(os.environ.get("WAYBILL_NATS", "nats://127.0.0.1:4222"))
    mesh.work("run-1", "thumbnails", make_thumbnail, concurrency=4, max_retries=3, backoff_ms=500)
    mesh.observe("uploads", count, observer_id="counter")
    await mesh.start()

    await mesh.publish_queue("run-1", "thumbnails", json.dumps({"url": "a.png"}).encode(), dedup_id="a.png")
    await mesh.publish_queue("run-1", "thumbnails", json.dumps({"url": "b.png", "works_at_try": 2}).encode())
    await mesh.publish_queue("run-1", "thumbnails", b"{}")
    await mesh.publish_topic("uploads", b"a.png")

    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()
    await mesh.stop()


asyncio.run(main())
