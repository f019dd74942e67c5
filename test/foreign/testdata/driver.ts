// A worker whose handlers do what the messages say, for the tests.

import { existsSync } from "node:fs";
import { connect, Reject, WaybillError, type Delivery } from "./waybill_worker.js";

interface Order { do: string; name: string; times?: number; until?: string; execution?: string; route?: string }

const options = JSON.parse(process.argv[2]!);
const tell = (event: Record<string, unknown>) => process.stdout.write(JSON.stringify(event) + "\n");
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function obey(d: Delivery): Promise<unknown> {
  const order = JSON.parse(d.text) as Order;
  const told: Record<string, unknown> = { name: order.name, attempt: d.attempt, id: d.id };
  tell({ event: "start", header: d.headers.get("x-test"), ...told });
  switch (order.do) {
    case "fail":
      if (d.attempt <= order.times!) throw new Error("no luck");
      break;
    case "reject":
      throw new Reject("never");
    case "late":
      if (d.attempt === 1) await pause(4000); // it does not heed its time limit
      break;
    case "hold":
      while (!existsSync(order.until!)) {
        d.signal.throwIfAborted();
        await pause(20);
      }
      break;
    case "publish":
      try {
        const answer = await mesh.publishQueue(order.execution!, order.route!, "from typescript", { headers: { "x-test": "yes" }, dedupId: "once" });
        Object.assign(told, { message_id: answer.message_id, duplicate: answer.duplicate ?? false });
      } catch (e) {
        if (!(e instanceof WaybillError)) throw e;
        told.code = e.code;
      }
      break;
    case "enqueue": {
      const changed = await mesh.define(order.route!, { max_retries: 2, backoff_ms: 20 });
      const work = { do: "fail", name: "inner", times: 1 };
      const answer = await mesh.enqueue(order.route!, { id: "driver::obey", namespace: order.execution }, work, { receipt: "r-1" });
      Object.assign(told, { message_id: answer.message_id, duplicate: !changed });
      break;
    }
    case "call":
      Object.assign(told, await mesh.call({ id: "driver::obey", namespace: order.execution }, { do: "answer", name: "called" }));
      break;
    case "answer":
      return { header: "answered" };
  }
  tell({ event: "end", receipt: d.headers.get("Waybill-Receipt"), ...told });
  return undefined;
}

const mesh = await connect(options.nats);
mesh.work(options.execution, "jobs", obey, { max_retries: 3, backoff_ms: 20, concurrency: 8 });
mesh.work(options.execution, "hasty", obey, { max_retries: 3, backoff_ms: 20, timeout_ms: 1500 });
mesh.observe(options.topic, obey, { observer_id: options.observer, max_retries: 2, backoff_ms: 20 });
mesh.serve({ id: "driver::obey", namespace: options.execution }, obey, 8);
process.once("SIGTERM", async () => {
  await mesh.stop(options.window * 1000);
  tell({ event: "stopped" });
  process.exit(0);
});
try {
  await mesh.start();
  tell({ event: "ready" });
} catch (e) {
  if (!(e instanceof WaybillError)) throw e;
  tell({ event: "refused", code: e.code });
  process.exit(0);
}
