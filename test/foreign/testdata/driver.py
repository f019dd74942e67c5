"""A worker whose handlers do what the messages say, for the tests."""

import asyncio
import collections
import json
import os
import signal
import sys
import time

import waybill_worker as waybill


def tell(**event):
    print(json.dumps(event), flush=True)


calls = collections.Counter()  # of handlers, by the message's name


async def obey(mesh, delivery):
    order = json.loads(delivery.data)
    told = {"name": order["name"], "attempt": delivery.attempt, "id": delivery.id}
    tell(event="start", header=delivery.headers.get("x-test", ""), **told)
    match order["do"]:
        case "fail" if delivery.attempt <= order["times"]:
            raise OSError("no luck")
        case "incomplete" if calls[order["name"]] < order["times"]:
            calls[order["name"]] += 1
            raise waybill.Incomplete(order["outcome"], "not yet")
        case "reject":
            raise waybill.Reject("never")
        case "late":
            end = time.monotonic() + 4
            while delivery.attempt == 1 and time.monotonic() < end:
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    pass  # a handler that does not heed its time limit
        case "hold":
            while not os.path.exists(order["until"]):
                await asyncio.sleep(0.02)
        case "publish":
            try:
                answer = await mesh.publish_queue(
                    order["execution"], order["route"], b"from python", headers={"x-test": "yes"}, dedup_id="once")
                told.update(message_id=answer["message_id"], duplicate=answer.get("duplicate", False))
            except waybill.WaybillError as e:
                told.update(code=e.code)
        case "enqueue":
            changed = await mesh.define(order["route"], max_retries=2, backoff_ms=20)
            work = {"do": "fail", "name": "inner", "times": 1}
            answer = await mesh.enqueue(order["route"], "driver::obey", work, namespace=order["execution"], receipt="r-1")
            told.update(message_id=answer["message_id"], duplicate=not changed)
        case "call":
            told.update(await mesh.call("driver::obey", {"do": "answer", "name": "called"}, namespace=order["execution"]))
        case "answer":
            return {"header": "answered"}
    tell(event="end", receipt=delivery.headers.get("Waybill-Receipt", ""), **told)


async def main():
    options = json.loads(sys.argv[1])
    mesh = await waybill.connect(options["nats"])
    handler = lambda delivery: obey(mesh, delivery)
    mesh.work(options["execution"], "jobs", handler, max_retries=3, backoff_ms=20, concurrency=8)
    mesh.work(options["execution"], "hasty", handler, max_retries=3, backoff_ms=20, timeout_ms=1500)
    mesh.observe(options["topic"], handler, observer_id=options["observer"], max_retries=2, backoff_ms=20)
    mesh.serve("driver::obey", handler, namespace=options["execution"], concurrency=8)
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    try:
        await mesh.start()
    except waybill.WaybillError as e:
        tell(event="refused", code=e.code)
        return
    tell(event="ready")
    await told.wait()
    await mesh.stop(window=options["window"])
    tell(event="stopped")


asyncio.run(main())
