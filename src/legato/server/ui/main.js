// The live page: hands each event of the one stream to the parts that show it.

import { showAcceptance, showFallbacks } from "./bars.js";
import { Tiles } from "./charts.js";
import { Chat } from "./chat.js";
import { count, element } from "./format.js";
import { fetchWithKey } from "./key.js";
import { follow } from "./stream.js";
import { DispatchTable } from "./table.js";
import { startTheme } from "./theme.js";
import { Timeline } from "./timeline.js";

startTheme();
const tiles = new Tiles();
const timeline = new Timeline();
const table = new DispatchTable();
new Chat();

let ended = null;
let missed = 0;

function onEvent(name, value) {
  if (name === "graphs") return table.show(value);
  if (name === "ended") { ended = value.error; return; }
  if (name === "snapshot") {
    tiles.replace(value.points, value.stats);
    timeline.replace(value.steps);
    table.replays = {};
  } else {
    tiles.add(value.point, value.stats);
    timeline.add(value.steps);
    missed += value.missed;
  }
  const { stats } = value;
  timeline.count(stats.graph_steps, stats.graph_padding_tokens);
  table.count(stats.graph_replays);
  showFallbacks(stats);
  showAcceptance(stats);
  document.getElementById("link").title = missed ? `${count(missed)} steps were too many to show` : "";
}

function onState(state) {
  const link = document.getElementById("link");
  const texts = { live: "live", resting: "resting while hidden", lost: ended ? "the engine has ended" : "not connected, trying again" };
  link.dataset.state = state;
  link.textContent = texts[state];
  if (state === "live") { ended = null; about(); }
}

async function about() {
  const response = await fetchWithKey("about");
  if (!response.ok) return;
  const { model, device, dtype, max_model_len, max_num_seqs, version } = await response.json();
  document.title = `${model} · Legato`;
  const chips = [model, device, dtype, `${count(max_model_len)} tokens`, `${count(max_num_seqs)} requests`, `v${version}`];
  document.getElementById("about").replaceChildren(...chips.map((text) => element("span", { textContent: text })));
}

follow("events", onEvent, onState);
