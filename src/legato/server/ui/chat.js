// The chat: a conversation, sampling controls, streaming and stopping. Owns its messages; knows nothing of steps.

import { count, element, rate } from "./format.js";
import { fetchWithKey } from "./key.js";
import { eventsOf } from "./stream.js";

const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];
const byId = (id) => document.getElementById(id);

export class Chat {
  constructor() {
    this.turns = [];
    this.controller = null;
    this.list = byId("messages");
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    byId("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#ask();
    });
    byId("stop-answer").addEventListener("click", () => this.controller?.abort());
    byId("clear").addEventListener("click", () => this.#clear());
    for (const name of ["temperature", "top_p"]) {
      const show = () => (document.querySelector(`output[for="${name}"]`).value = byId(name).value);
      byId(name).addEventListener("input", show);
      show();
    }
  }

  #clear() {
    this.controller?.abort();
    this.turns = [];
    this.list.replaceChildren(element("p", { className: "hint", textContent: "Ask something, and watch the steps that answer it." }));
  }

  async #ask() {
    const text = byId("message").value.trim();
    if (!text || this.controller) return;
    byId("message").value = "";
    this.list.querySelector(".hint")?.remove();
    const turns = this.turns;
    turns.push({ role: "user", content: text });
    this.#bubble("user", text);
    const bubble = this.#bubble("assistant streaming", "");
    const controller = (this.controller = new AbortController());
    this.#busy(true);
    const answer = { content: "", usage: null, finish: null, began: performance.now(), first: null };
    try {
      await this.#read(answer, bubble, controller.signal);
    } catch (error) {
      if (error.name === "AbortError") answer.finish = "stopped by you";
      else {
        bubble.classList.add("error");
        answer.finish = error.message;
      }
    }
    turns.push({ role: "assistant", content: answer.content });
    bubble.classList.remove("streaming");
    bubble.append(element("p", { className: "note", textContent: told(answer) }));
    this.#follow();
    this.controller = null;
    this.#busy(false);
  }

  async #read(answer, bubble, signal) {
    const response = await fetchWithKey("../v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(this.#body()),
      signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const { name, data } of eventsOf(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (name === "error") throw new Error(chunk.error.message);
      answer.usage = chunk.usage ?? answer.usage;
      const choice = chunk.choices[0];
      if (!choice) continue;
      answer.finish = choice.finish_reason ?? answer.finish;
      if (!choice.delta.content) continue;
      answer.first ??= performance.now();
      answer.content += choice.delta.content;
      bubble.firstChild.textContent = answer.content;
      this.#follow();
    }
  }

  #body() {
    const system = byId("system").value.trim();
    const body = { messages: system ? [{ role: "system", content: system }, ...this.turns] : [...this.turns] };
    for (const name of NUMBERS) if (byId(name).value !== "") body[name] = Number(byId(name).value);
    if (byId("stop").value) body.stop = byId("stop").value;
    return { ...body, stream: true, stream_options: { include_usage: true } };
  }

  #bubble(kind, text) {
    const made = element("div", { className: `message ${kind}` }, element("p", { textContent: text }));
    this.list.append(made);
    this.list.scrollTop = this.list.scrollHeight;
    return made;
  }

  /** Stay at the end, unless the reader has scrolled up. */
  #follow() {
    const { list } = this;
    if (list.scrollHeight - list.scrollTop - list.clientHeight < 80) list.scrollTop = list.scrollHeight;
  }

  #busy(busy) {
    this.list.setAttribute("aria-busy", String(busy)); // read out once the answer is whole
    byId("send").hidden = busy;
    byId("stop-answer").hidden = !busy;
  }
}

function told({ usage, finish, began, first }) {
  const parts = [];
  if (first !== null) parts.push(`first token ${Math.round(first - began)} ms`);
  if (usage) {
    const tokens = usage.completion_tokens;
    const seconds = (performance.now() - (first ?? began)) / 1000;
    parts.push(`${count(tokens)} tokens`);
    if (tokens > 1 && seconds > 0) parts.push(`${rate((tokens - 1) / seconds)} per second`);
  }
  if (finish && finish !== "stop") parts.push(finish === "length" ? "ended by length" : finish);
  return parts.join(" · ");
}
