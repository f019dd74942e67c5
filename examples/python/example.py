"""Thumbnails: work a route, observe a topic, and serve a function, until Ctrl-C.

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


async def publish_gallery(delivery):
    gallery = json.loads(delivery.data)
    print(f"published gallery {gallery['name']} of {gallery['owner']}", flush=True)
    return {"published": gallery["name"]}


async def main():
    mesh = await waybill.connect(os.environ.get("WAYBILL_NATS", "nats://127.0.0.1:4222"))
    mesh.work("run-1", "thumbnails", make_thumbnail, concurrency=4, max_retries=3, backoff_ms=500)
    mesh.observe("uploads", count, observer_id="counter")
    mesh.serve("gallery::publish", publish_gallery)
    await mesh.start()

    await mesh.publish_queue("run-1", "thumbnails", json.dumps({"url": "a.png"}).encode(), dedup_id="a.png")
    await mesh.publish_queue("run-1", "thumbnails", json.dumps({"url": "b.png", "works_at_try": 2}).encode())
    await mesh.publish_queue("run-1", "thumbnails", b"{}")
    await mesh.publish_topic("uploads", b"a.png")

    # One gallery of an owner after another, in order; those of different owners beside each other.
    await mesh.define("galleries", type="fifo", message_group_field="owner", max_retries=5)
    for name in "spring", "summer":
        await mesh.enqueue("galleries", "gallery::publish", {"name": name, "owner": "ann"})
    answer = await mesh.call("gallery::publish", {"name": "now", "owner": "bob"})
    print(json.dumps(answer), flush=True)

    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()
    await mesh.stop()


asyncio.run(main())
