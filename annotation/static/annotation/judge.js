// One statement at a time, one key each. Without this script the page works as a plain form, one page per answer.
// Answers are saved one after the other in the background, under UUIDs made here, and sent again until they are.
(() => {
  const form = document.querySelector("form.answers");
  const buttons = [...form.querySelectorAll("button")];
  const dialog = document.querySelector("dialog.instructions");
  const part = (name) => document.querySelector(`[data-${name}]`);
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const keys = { t: 0, 1: 0, f: 1, 2: 1, u: 2, 3: 2 };
  const ahead = read("statements"); // [0] is in sight
  const behind = read("earlier"); // answered, oldest first
  const known = new Set(ahead.map((each) => each.task));
  let [unsaved, saving, refilling, seconds, since] = [0, Promise.resolve(), null, 0, 0];

  const uuid = () => "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) =>
    (digit ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (digit / 4)))).toString(16));
  const element = (name, className, ...children) => {
    const made = Object.assign(document.createElement(name), { className });
    return made.append(...children), made;
  };
  const marked = (parts) => parts.map(([text, isEntity]) => (isEntity ? element("b", "", text) : text));
  const label = ({ label: value }) =>
    element("span", `label is-${value}`, buttons.find((button) => button.value === value).firstElementChild.textContent);
  const row = (each) => {
    const change = element("button", "button", "Change");
    change.onclick = () => backTo(each);
    return element("li", "", label(each), element("span", "recent-statement", ...marked(each.parts)), change);
  };
  const tell = (text, className) => Object.assign(part("saved"), { textContent: text, className: `saved ${className}` });
  const countTime = () => {
    if (since) seconds += (Date.now() - since) / 1000;
    since = document.hidden ? 0 : Date.now();
  };

  const show = async () => {
    part("recent").replaceChildren(...behind.slice(-5).reverse().map(row));
    if (ahead.length < 4) refilling ??= refill();
    if (!ahead.length) part("statement").replaceChildren("One moment …");
    if (!ahead.length) await Promise.all([refilling, saving]); // never leave before all is saved
    if (!ahead.length) return location.assign(form.action); // nothing is left; the server says so
    part("statement").replaceChildren(...marked(ahead[0].parts));
    part("given").hidden = !ahead[0].label;
    if (ahead[0].label) part("given").querySelector(".label").replaceWith(label(ahead[0]));
    return ([seconds, since] = [0, document.hidden ? 0 : Date.now()]);
  };
  const refill = async () => {
    const get = () => fetch(form.action, { headers: { Accept: "application/json" } });
    const { tasks = [] } = await saving.then(get).then((response) => response.json()).catch(() => ({}));
    for (const each of tasks.filter((one) => !known.has(one.task))) known.add(each.task) && ahead.push(each);
    refilling = null;
  };
  const backTo = (each) => {
    ahead.unshift(...behind.splice(behind.indexOf(each), 1));
    show();
  };
  const takeBack = (answered) => {
    const refused = behind.splice(behind.indexOf(answered)); // what came after would be refused as well
    const fresh = refused.filter((each) => each.isFresh).length;
    part("done").textContent = part("progress").value -= fresh;
    part("left").textContent = Number(part("left").textContent) + fresh;
    ahead.unshift(...refused.map(({ isFresh, label: given, ...each }) => (isFresh ? each : { ...each, label: given })));
    show();
  };
  const save = async (answer, answered) => {
    const send = () => fetch(form.action, { method: "POST", body: answer, headers: { Accept: "application/json" } });
    for (let wait = 500; ; wait = Math.min(2 * wait, 15000)) {
      const response = await send().catch(() => ({ status: 500 }));
      if (response.ok && !response.redirected) return tell((unsaved -= 1) ? "Saving" : "Saved", unsaved ? "is-saving" : "");
      if (response.status < 500) {
        const refusal = await response.json().catch(() => null);
        form.inert = true;
        tell(refusal ? refusal.error.message : "You are logged out; log in and reload this page.", "is-failed");
        takeBack(answered);
        return new Promise(() => {});
      }
      tell("Not saved yet, trying again", "is-failed");
      await new Promise((wake) => setTimeout(wake, wait));
    }
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!ahead.length || form.inert) return;
    countTime();
    if (!ahead[0].label) {
      part("done").textContent = part("progress").value += 1;
      part("left").textContent -= 1;
    }
    const isFresh = !ahead[0].label;
    const answered = { ...ahead.shift(), label: event.submitter.value, isFresh };
    const values = { task: answered.task, label: answered.label, client_uuid: uuid(), seconds: seconds.toFixed(2) };
    const answer = new FormData(form);
    Object.entries(values).forEach(([name, value]) => answer.set(name, value));
    behind.push(answered);
    tell("Saving", "is-saving");
    unsaved += 1;
    saving = saving.then(() => save(answer, answered));
    show();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || dialog.open) return;
    const key = event.key.toLowerCase();
    if (key in keys) buttons[keys[key]].click();
    else if ((key === "backspace" || key === "arrowleft") && behind.length) backTo(behind.at(-1));
    else if (key === "?") dialog.showModal();
    else return;
    event.preventDefault();
  });
  document.addEventListener("visibilitychange", countTime);
  window.addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
  part("instructions").hidden = false;
  part("instructions").addEventListener("click", () => dialog.showModal());
  show();
})();
