// The page's half of FormWidget: a form of a server or the model, or an address to open.

const LABELS = { approve: "Send", deny: "Decline", abort: "Cancel" };
// The model's question is part of a turn, which the person can stop.
const OF_MODEL = { ...LABELS, abort: "Stop" };
const TYPES = new Map([["email", "email"], ["uri", "url"], ["date", "date"]]);

function drawHead(model, id) {
  const head = make("div", "agm-head");
  head.id = id;
  const server = model.get("server");
  head.append(...(server ? ["The MCP server ", make("strong", "", server)] : ["The agent"]), " asks:");
  return head;
}

function drawAddress(model) {
  const box = make("div", "agm-address");
  box.append("It wants you to open a page of ", make("strong", "agm-host", model.get("host")), ":");
  box.append(make("code", "agm-target agm-url", model.get("url")));
  return box;
}

// One way to fill in a field: its element, what to focus, and what was filled in.
function drawText(field) {
  const input = make("input", "agm-input");
  input.type = TYPES.get(field.format) ?? "text";
  if (field.kind !== "text") {
    // As text: a browser's number fields lose digits, and say nothing of what is no number.
    input.inputMode = field.kind === "integer" ? "numeric" : "decimal";
  }
  input.autocomplete = "off";
  input.value = field.default ?? "";
  return { element: input, focus: input, read: () => input.value };
}

function drawSwitch(field) {
  const input = make("input", "agm-check");
  input.type = "checkbox";
  input.checked = field.default === true;
  return { element: input, focus: input, read: () => input.checked };
}

function drawChoice(field) {
  const select = make("select", "agm-input");
  // By its place: a value may be any text, also an empty one.
  const none = new Option(field.required ? "Choose…" : "(none)", "-1");
  select.append(none, ...field.options.map(([, label], place) => new Option(label, place)));
  select.value = String(field.options.findIndex(([value]) => value === field.default));
  const read = () => (select.value === "-1" ? null : field.options[Number(select.value)][0]);
  return { element: select, focus: select, read };
}

// All options in sight, with their descriptions; text of one's own beside them where that is valid.
function drawOptions(field) {
  const isOne = field.kind === "choice";
  const box = make("div", "agm-choices");
  box.tabIndex = -1;
  box.setAttribute("role", isOne ? "radiogroup" : "group");
  const group = makeId();
  const inputs = field.options.map(([value, label, description], place) => {
    const line = make("label", "agm-choice");
    const input = make("input", "agm-check");
    input.type = isOne ? "radio" : "checkbox";
    input.name = group;
    input.checked = [field.default ?? []].flat().includes(value);
    const words = make("span", "");
    words.append(make("span", "agm-label", field.listed ? `${place + 1}. ${label}` : label));
    words.append(...(description ? [" ", make("span", "agm-covers", description)] : []));
    line.append(input, words);
    box.append(line);
    return input;
  });
  const own = make("input", "agm-input");
  if (field.open) {
    own.placeholder = "Something else";
    own.setAttribute("aria-label", `${field.title}: something else`);
    box.append(own);
  }
  if (isOne) {
    // One answer: an option takes back the text, and the text takes back the option.
    own.addEventListener("input", () => inputs.forEach((input) => (input.checked &&= !own.value)));
    inputs.forEach((input) => input.addEventListener("change", () => (own.value = "")));
  }
  box.addEventListener("keydown", (event) => {
    const input = event.target !== own && inputs[Number(event.key) - 1];
    if (input && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
      input.click();
    }
  });
  const read = () => {
    const chosen = field.options.map(([v]) => v).filter((_, place) => inputs[place].checked);
    const text = own.value.trim();
    const all = text ? [...chosen, text] : chosen;
    return isOne ? (all.at(-1) ?? null) : all;
  };
  return { element: box, focus: inputs[0], read };
}

const DRAWN = { boolean: drawSwitch, choice: drawChoice };

// A field with its label, what it takes, and room for what is wrong with it.
function drawField(field) {
  const isListed = field.kind === "choices" || (field.kind === "choice" && field.listed);
  const drawn = (isListed ? drawOptions : DRAWN[field.kind] || drawText)(field);
  const row = make("div", "agm-form-field");
  const id = makeId();
  const label = make(isListed ? "div" : "label", "agm-label", field.title);
  label.id = `${id}-label`;
  if (field.required) {
    const mark = make("span", "agm-required", " *");
    mark.title = "required";
    label.append(mark);
    drawn.element.setAttribute("aria-required", "true");
  }
  drawn.element.id = id;
  drawn.element.dataset.field = field.name;
  if (isListed) {
    drawn.element.setAttribute("aria-labelledby", label.id);
  } else {
    label.htmlFor = id;
  }
  const told = make("div", "agm-covers");
  told.id = `${id}-told`;
  told.append(...[field.description, field.hint].filter(Boolean).map((t) => make("div", "", t)));
  const problem = make("div", "agm-problem");
  problem.id = `${id}-problem`;
  drawn.element.setAttribute("aria-describedby", `${told.id} ${problem.id}`);
  if (field.kind === "boolean") {
    const line = make("div", "agm-choice");
    line.append(drawn.element, label);
    row.append(line, told, problem);
  } else {
    row.append(label, drawn.element, told, problem);
  }

  function showProblem(text) {
    problem.textContent = text;
    drawn.element.setAttribute("aria-invalid", String(text !== ""));
  }
  return { ...drawn, name: field.name, row, showProblem };
}

function leadsTo(url, host) {
  try {
    const { protocol, host: read } = new URL(url);
    const port = protocol === "https:" ? ":443" : ":80";
    const same = read === host.toLowerCase() || `${read}${port}` === host.toLowerCase();
    return same && (protocol === "https:" || protocol === "http:");
  } catch {
    return false;
  }
}

function render({ model, el }) {
  const box = make("div", "agm-question agm-form");
  const headId = makeId();
  const url = model.get("url");
  box.tabIndex = -1; // where the way to a question leads
  box.setAttribute("role", "group");
  box.setAttribute("aria-labelledby", headId);
  keepKeys(box);
  box.append(drawHead(model, headId), make("div", "agm-message", model.get("message")));
  if (url) {
    box.append(drawAddress(model));
  }
  const fields = model.get("fields").map(drawField);
  box.append(...fields.map((field) => field.row));

  const row = make("div", "agm-buttons");
  const buttons = Object.entries(model.get("server") ? LABELS : OF_MODEL).map(([decision, label]) => {
    const opens = url && decision === "approve";
    const button = makeButton(opens ? "Open the page" : label);
    button.dataset.decision = decision;
    button.addEventListener("click", () => (decision === "approve" ? accept() : answer(decision)));
    row.append(button);
    return button;
  });
  const result = make("div", "agm-result");
  result.setAttribute("role", "status");
  result.tabIndex = -1;
  box.append(row, result);

  function answer(decision) {
    if (model.get("decision")) {
      return;
    }
    const content = Object.fromEntries(fields.map((field) => [field.name, field.read()]));
    tell(model, { type: "answer", id: model.get("question_id"), decision, content });
  }

  function accept() {
    if (url && !model.get("decision")) {
      if (!leadsTo(url, model.get("host"))) {
        result.textContent = "This address can be read in two ways; it is not opened.";
        return;
      }
      window.open(url, "_blank", "noopener,noreferrer");
    }
    answer("approve");
  }

  function showProblems(content) {
    if (content.type !== "problems") {
      return;
    }
    // A server may call a field like what every object has, such as "constructor".
    const problems = new Map(Object.entries(content.problems));
    for (const field of fields) {
      field.showProblem(problems.get(field.name) ?? "");
    }
    fields.find((field) => problems.get(field.name))?.focus?.focus({ preventScroll: true });
  }

  function showDecision() {
    const decision = model.get("decision");
    if (!decision) {
      return;
    }
    for (const field of fields) {
      field.showProblem("");
    }
    showAnswer(decision, box, buttons, box.querySelectorAll("button, input, select"), result);
  }

  // As in every form; the kernel checks, and says in words what is wrong.
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT" && !event.isComposing) {
      event.preventDefault();
      event.stopPropagation();
      accept();
    }
  });

  el.append(box);
  model.on("change:decision", showDecision);
  model.on("msg:custom", showProblems);
  showDecision();
  tell(model, { type: "drawn" });
  return () => {
    model.off("change:decision", showDecision);
    model.off("msg:custom", showProblems);
  };
}

export default { render };
