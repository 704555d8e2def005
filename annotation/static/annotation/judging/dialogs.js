// The instructions and the report of a broken statement, as dialogs over the page.

// What is said about the relation of a statement, instead of the instructions that the page came with; offline, those do.
async function tell(place, url) {
  const html = await fetch(url).then((response) => response.text()).catch(() => "");
  const told = new DOMParser().parseFromString(html, "text/html").querySelector("[data-told]");
  if (told) place.replaceChildren(...told.childNodes);
}

export function bindDialogs(currentTask, onReport) {
  const [instructions, report] = ["instructions", "report"].map((name) => document.querySelector(`[data-dialog=${name}]`));
  const opener = document.querySelector("[data-open=instructions]");
  const form = report.querySelector("form");
  let task = null;

  const openInstructions = () => {
    instructions.showModal();
    tell(instructions.querySelector("[data-told]"), `${opener.pathname}?task=${currentTask()}`);
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
