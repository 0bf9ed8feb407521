// What the questions' pages share: elements whose text is text, whatever stands in it.

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

// An id for an element, new in the page; `crypto.randomUUID` is only there on https and localhost.
function makeId() {
  const numbers = crypto.getRandomValues(new Uint32Array(4));
  return `agm-${Array.from(numbers, (number) => number.toString(36)).join("-")}`;
}

function makeButton(label, className = "agm-button") {
  const button = make("button", className, label);
  button.type = "button";
  return button;
}

// JupyterLab's own keys (Enter edits the cell, D D deletes it) must not take ours: it looks at what
// has the focus first.
function keepKeys(box) {
  box.addEventListener("focusin", ({ target }) => {
    target.toggleAttribute("data-lm-suppress-shortcuts", !box.dataset.answered);
  });
}

// Shows which answer was given, by its button where there is one, and takes no other.
// A disabled button drops the focus: the page's extension takes it where the person was before, and
// without one it stays at the answer.
function showAnswer(decision, box, buttons, controls, result) {
  const chosen = buttons.find((button) => button.dataset.decision === decision);
  const focused = box.contains(document.activeElement);
  for (const element of controls) {
    element.disabled = true;
  }
  chosen?.classList.add("agm-chosen");
  result.textContent = `Answer: ${chosen ? chosen.textContent : decision}`;
  box.dataset.answered = "true";
  if (focused) {
    result.focus({ preventScroll: true });
    document.dispatchEvent(new CustomEvent("agent-magics-answered"));
  }
}

// What is said through the extension of the page reaches a kernel whose main thread is busy.
// Until a page has proven that way both are taken, since the kernel drops what it hears again; and
// where no extension takes it (this page lacks one, or it is not connected yet), the widget's own.
function tell(model, content) {
  const detail = { id: model.get("question_id"), kernel: model.widget_manager?.kernel?.id, content };
  const said = new CustomEvent("agent-magics-question", { detail, cancelable: true });
  const isTaken = !document.dispatchEvent(said);
  if (!(isTaken && model.get("by_page"))) {
    model.send(content);
  }
}

