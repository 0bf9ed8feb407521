// The page's half of QuestionWidget: draws the question once and sends one answer.

const APPROVE = "approve";
const DENY = "deny";
const LASTING = "_for_";

function drawHead(model, id) {
  const head = make("div", "agm-head");
  head.id = id;
  if (model.get("dangerous")) {
    head.append(make("strong", "agm-danger", "Dangerous: "));
  }
  if (model.get("tool")) {
    const text = model.get("arguments");
    const wants = DIFF.test(text) || PATCH.test(text) ? " wants to change: " : " wants to run: ";
    head.append(make("strong", "", model.get("tool")), wants);
  }
  head.append(make(model.get("tool") ? "code" : "span", "agm-target", model.get("target")));
  return head;
}

// A unified diff, and a patch as its field of the arguments or alone.
const DIFF = /^(?:rename from .*\nrename to .*\n)?--- .*\n\+\+\+ /;
const PATCH = /^(?:patch:\n  │ )?\*\*\* Begin Patch\n/;
const MARK = /^(?:  │ )?([-+])/;
const MARKED = { "+": "agm-added", "-": "agm-removed" };

// The lines of a change, in its colours; the text keeps its + and -, the colour only helps.
function drawChange(text) {
  const lines = text.replace(/\n$/, "").split("\n");
  return lines.map((line, place) => {
    const names =
      (line.startsWith("--- ") && lines[place + 1]?.startsWith("+++ ")) ||
      (line.startsWith("+++ ") && lines[place - 1]?.startsWith("--- "));
    const mark = names ? "" : MARK.exec(line)?.[1];
    return make("span", MARKED[mark] ?? "agm-same", `${line}\n`);
  });
}

function drawArguments(model) {
  const text = model.get("arguments");
  const box = make("pre", "agm-arguments");
  if (DIFF.test(text) || PATCH.test(text)) {
    box.append(...drawChange(text));
  } else {
    box.textContent = text;
  }
  // What scrolls must be reachable without a mouse.
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `Arguments, ${model.get("language")}`);
  return box;
}

// The end of long arguments is never out of sight.
function drawEnding(model) {
  const box = make("div", "agm-ending");
  box.append(make("span", "", "It ends with: "), make("code", "agm-target", model.get("ending")));
  return box;
}

function drawField() {
  const label = make("label", "agm-field");
  const input = make("input", "agm-feedback");
  input.type = "text";
  input.placeholder = "Tell the model what to do instead";
  input.setAttribute("aria-label", "Tell the model what to do instead; goes with Deny");
  label.append(input);
  return [label, input];
}

// One lasting answer: a button, and beside it what exactly it would allow.
function drawScope(button, covers) {
  const row = make("div", "agm-scope");
  const words = make("span", "agm-covers", covers);
  words.id = makeId();
  button.setAttribute("aria-describedby", words.id);
  row.append(button, words);
  return row;
}

// The text to change, hidden until it is asked for.
function drawEditor(model, run) {
  const box = make("div", "agm-editor");
  const area = make("textarea", "agm-edited");
  area.value = model.get("editable");
  area.rows = Math.min(12, area.value.split("\n").length + 1);
  area.spellcheck = false;
  area.setAttribute("aria-label", "What is to be run instead");
  const accept = makeButton("Run as changed");
  accept.addEventListener("click", run);
  box.append(area, accept);
  box.hidden = true;
  return [box, area, accept];
}

function render({ model, el }) {
  const box = make("div", "agm-question");
  const headId = makeId();
  box.tabIndex = -1;
  box.classList.toggle("agm-dangerous", model.get("dangerous"));
  box.setAttribute("role", "group");
  box.setAttribute("aria-labelledby", headId);
  keepKeys(box);

  const [field, input] = drawField();
  const [editor, area, accept] = drawEditor(model, () => answer(APPROVE, area.value));
  const edit = makeButton("Change…");
  edit.setAttribute("aria-expanded", "false");
  edit.addEventListener("click", () => showEditor(editor.hidden));
  const row = make("div", "agm-buttons");
  const scopes = make("div", "agm-scopes");
  scopes.setAttribute("role", "group");
  scopes.setAttribute("aria-label", "Lasting answers");

  const buttons = model.get("choices").map(({ decision, label, covers }) => {
    const button = makeButton(label);
    button.dataset.decision = decision;
    button.addEventListener("click", () => answer(decision));
    if (decision.includes(LASTING)) {
      scopes.append(drawScope(button, covers));
    } else {
      // The label stays short; what it applies to is read out after it.
      button.setAttribute("aria-describedby", headId);
      row.append(button);
    }
    return button;
  });
  if (model.get("editable")) {
    row.firstChild.after(edit);
  }
  if (model.get("tool")) {
    row.append(field);
  }
  const result = make("div", "agm-result");
  result.setAttribute("role", "status");
  result.tabIndex = -1;

  // Beside a text that was changed, Approve would run what stands above it.
  function holdBack() {
    const changed = !editor.hidden && area.value !== model.get("editable");
    for (const button of buttons) {
      button.disabled = changed && button.dataset.decision.startsWith(APPROVE);
    }
  }

  function showEditor(shown) {
    editor.hidden = !shown;
    holdBack();
    edit.setAttribute("aria-expanded", String(shown));
    (shown ? area : edit).focus({ preventScroll: true });
  }

  function answer(decision, edited = null) {
    const offered = buttons.some((button) => button.dataset.decision === decision);
    if (model.get("decision") || !offered) {
      return;
    }
    // Set without saving: it stops the other views on this page at once, the kernel decides.
    model.set("decision", decision);
    const id = model.get("question_id");
    const changed = edited === model.get("editable") ? null : edited;
    const feedback = input.value.trim();
    tell(model, { type: "answer", id, decision, feedback, edited: changed });
  }

  function showDecision() {
    const decision = model.get("decision");
    if (decision) {
      showAnswer(decision, box, buttons, [...buttons, input, edit, area, accept], result);
    }
  }

  area.addEventListener("input", holdBack);
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) {
      return;
    }
    const entered = event.key === "Enter";
    const isDefault = model.get("dangerous") && event.target === box;
    const denies = entered && (isDefault || (event.target === input && input.value.trim() !== ""));
    const accepts = entered && event.target === area && (event.ctrlKey || event.metaKey);
    if (event.key !== "Escape" && !denies && !accepts) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (accepts) {
      answer(APPROVE, area.value);
    } else if (event.key === "Escape" && event.target === area) {
      showEditor(false);
    } else {
      answer(DENY);
    }
  });

  box.append(drawHead(model, headId));
  if (model.get("reason")) {
    box.append(make("div", "agm-reason", model.get("reason")));
  }
  if (model.get("arguments")) {
    box.append(drawArguments(model));
  }
  if (model.get("ending")) {
    box.append(drawEnding(model));
  }
  box.append(row, editor);
  if (scopes.childElementCount) {
    box.append(scopes);
  }
  box.append(result);
  el.append(box);

  model.on("change:decision", showDecision);
  showDecision();
  tell(model, { type: "drawn" });
  return () => model.off("change:decision", showDecision);
}

export default { render };
