// The API key: asked for when the server wants one, kept in this tab's session storage only.

const NAME = "legato-key";
let asking = null;

export function authorization() {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Fetch with the key; where the server refuses it, ask the reader for another and try again. */
export async function fetchWithKey(url, options = {}) {
  for (;;) {
    const used = authorization();
    const response = await fetch(url, { ...options, headers: { ...options.headers, ...used } });
    if (response.status !== 401) return response;
    if (authorization().Authorization === used.Authorization) await ask("Authorization" in used);
  }
}

function ask(wrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const field = document.getElementById("key");
    if (wrong) document.getElementById("key-note").textContent = "That key was not accepted. Kept in this tab until it is closed, and nowhere else.";
    field.value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(NAME, field.value.trim());
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
