// Thumbnails: work a route, and observe a topic, until Ctrl-C.
//
//     waybill up                          # in one terminal
//     npm install && npm start            # in another

import { connect, Reject, type Delivery } from "./waybill_worker.js";

async function makeThumbnail(d: Delivery): Promise<void> {
  const picture = JSON.parse(d.text) as { url?: string; worksAtTry?: number };
  if (!picture.url) throw new Reject("there is no url"); // a dead letter at once
  if (d.attempt < (picture.worksAtTry ?? 1)) throw new Error(`${picture.url} does not answer`); // tried again, later and later
  console.log(`made a thumbnail of ${picture.url} at try ${d.attempt} of ${d.maxRetries}`);
}

const mesh = await connect(process.env.WAYBILL_NATS);
mesh.work("run-1", "thumbnails", makeThumbnail, { concurrency: 4, max_retries: 3, backoff_ms: 500 });
mesh.observe("uploads", async (d) => console.log(`one more upload: ${d.text}`), { observer_id: "counter" });
await mesh.start();

await mesh.publishQueue("run-1", "thumbnails", JSON.stringify({ url: "a.png" }), { dedupId: "a.png" });
await mesh.publishQueue("run-1", "thumbnails", JSON.stringify({ url: "b.png", worksAtTry: 2 }));
await mesh.publishQueue("run-1", "thumbnails", "{}");
await mesh.publishTopic("uploads", "a.png");

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void mesh.stop());
