// Server-sent events over fetch, which unlike EventSource can carry a key. Owns parsing and reconnecting.

import { fetchWithKey } from "./key.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const HIDDEN_MS = 15_000;

/** Yield {name, data} for each event of a response. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) yield parse(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(text) {
  const event = { name: "message", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

/** Keep reading `url`: `onEvent(name, value)` for each event, `onState("live" | "lost" | "resting")` for the link. */
export function follow(url, onEvent, onState) {
  let wait = FIRST_WAIT_MS;
  let controller = null;
  let timer = null;
  let open = false;

  async function read() {
    timer = null;
    open = true;
    controller = new AbortController();
    try {
      const response = await fetchWithKey(url, { signal: controller.signal });
      if (!response.ok) throw new Error(`status ${response.status}`);
      wait = FIRST_WAIT_MS;
      onState("live");
      for await (const { name, data } of eventsOf(response)) onEvent(name, JSON.parse(data));
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof TypeError) && !/^status/.test(error.message)) console.error(error);
    }
    open = false;
    if (document.hidden) return onState("resting");
    onState("lost");
    timer = setTimeout(read, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  // Nobody sees a hidden page: it stops reading, and with the last reader the server stops asking the engine.
  let resting = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(resting);
    if (document.hidden) resting = setTimeout(() => controller.abort(), HIDDEN_MS);
    else if (!open && timer === null) read();
  });
  read();
}
