// What the questions' pages share: elements whose text is text, whatever stands in it.

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

function makeButton(label, className = "agm-button") {
  const button = make("button", className, label);
  button.type = "button";
  return button;
}

// What is said through the extension of the page reaches a kernel whose main thread is busy.
function tell(model, content) {
  if (!model.get("by_page")) {
    model.send(content);
    return;
  }
  const detail = { id: model.get("question_id"), kernel: model.widget_manager?.kernel?.id, content };
  document.dispatchEvent(new CustomEvent("agent-magics-question", { detail }));
}

