// Thumbnails: work a route, observe a topic, and serve a function, until Ctrl-C.
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

async function publishGallery(d: Delivery): Promise<{ published: string }> {
  const gallery = JSON.parse(d.text) as { name: string; owner: string };
  console.log(`published gallery ${gallery.name} of ${gallery.owner}`);
  return { published: gallery.name };
}

const mesh = await connect(process.env.WAYBILL_NATS);
mesh.work("run-1", "thumbnails", makeThumbnail, { concurrency: 4, max_retries: 3, backoff_ms: 500 });
mesh.observe("uploads", async (d) => console.log(`one more upload: ${d.text}`), { observer_id: "counter" });
mesh.serve({ id: "gallery::publish" }, publishGallery);
await mesh.start();

await mesh.publishQueue("run-1", "thumbnails", JSON.stringify({ url: "a.png" }), { dedupId: "a.png" });
await mesh.publishQueue("run-1", "thumbnails", JSON.stringify({ url: "b.png", worksAtTry: 2 }));
await mesh.publishQueue("run-1", "thumbnails", "{}");
await mesh.publishTopic("uploads", "a.png");

// One gallery of an owner after another, in order; those of different owners beside each other.
await mesh.define("galleries", { type: "fifo", message_group_field: "owner", max_retries: 5 });
for (const name of ["spring", "summer"]) await mesh.enqueue("galleries", { id: "gallery::publish" }, { name, owner: "ann" });
console.log(JSON.stringify(await mesh.call({ id: "gallery::publish" }, { name: "now", owner: "bob" })));

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void mesh.stop());
