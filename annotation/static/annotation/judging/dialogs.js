// Dialogs for the instructions and for the report of a broken statement.

// Loads the instructions for the relation of a statement. If offline, the general instructions stay visible.
async function loadInstructions(container, url) {
  const html = await fetch(url).then((response) => response.text()).catch(() => "");
  const loaded = new DOMParser().parseFromString(html, "text/html").querySelector("[data-instructions]");
  if (loaded) container.replaceChildren(...loaded.childNodes);
}

export function bindDialogs(currentTask, onReport) {
  const [instructions, report] = ["instructions", "report"].map((name) => document.querySelector(`[data-dialog=${name}]`));
  const opener = document.querySelector("[data-open=instructions]");
  const form = report.querySelector("form");
  let task = null;

  const openInstructions = () => {
    instructions.showModal();
    loadInstructions(instructions.querySelector("[data-instructions]"), `${opener.pathname}?task=${currentTask()}`);
  };
  opener.addEventListener("click", (event) => {
    event.preventDefault();
    openInstructions();
  });
  report.querySelector("[data-cancel]").addEventListener("click", () => report.close());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onReport({ task, ...Object.fromEntries(new FormData(form)) });
    report.close();
  });
  return {
    openInstructions,
    openReport(reportedTask, statement) {
      task = reportedTask;
      form.reset();
      report.querySelector("[data-reported]").replaceChildren(...[...statement.childNodes].map((node) => node.cloneNode(true)));
      report.showModal();
    },
  };
}
