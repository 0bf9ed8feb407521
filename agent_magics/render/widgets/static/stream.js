// The page's half of StreamWidget: appends text, follows the end, forgets the oldest lines.

const MAX_LINES = 5000;
const MAX_LINE = 20000;
// CSI and OSC sequences, then the two-character ones.
const ANSI = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
// The sequences that are kept: colours and the like (ECMA-48: SGR).
const COLOURS = /\x1b\[([0-9;]*)m/g;
const COLOUR = /^\x1b\[[0-9;]*m$/;
const PLAIN = { fg: null, bg: null, on: [] };
const SWITCHES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };
const SWITCHED_OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"] };
// The terminal's own sixteen, as JupyterLab has them; grey ones could be too faint on a page.
const OWN = (
  "#3e424d #e75c58 #00a250 #b27d12 #208ffb #d160c4 #60c6c8 #c5c1b4 " +
  "#282c36 #b22b31 #007427 #ba7800 #0065ca #a03196 #258f8f #a1a6b2"
).split(" ");
const GREYS = [0, 7, 8, 15];

// One line as a terminal would leave it: of sequences only colours, and only what follows the
// last "\r", in the colours that were on by then.
function cleanLine(line) {
  const text = line
    .replace(ANSI, (found) => (COLOUR.test(found) ? found : ""))
    .replace(/\r+$/, "");
  const start = text.lastIndexOf("\r") + 1;
  const before = start ? (text.slice(0, start).match(COLOURS) ?? []).join("") : "";
  return before + text.slice(start);
}

// The look after one sequence such as "1;31".
function changeLook(look, codes) {
  const numbers = codes.split(";").map(Number);
  let { fg, bg, on } = look;
  while (numbers.length > 0) {
    const code = numbers.shift();
    if (code === 0) {
      ({ fg, bg, on } = PLAIN);
    } else if (code in SWITCHES) {
      on = [...on.filter((name) => name !== SWITCHES[code]), SWITCHES[code]];
    } else if (code in SWITCHED_OFF) {
      on = on.filter((name) => !SWITCHED_OFF[code].includes(name));
    } else if (code === 38 || code === 48) {
      const colour = extendedColour(numbers);
      [fg, bg] = code === 38 ? [colour, bg] : [fg, colour];
    } else if (code === 39 || code === 49) {
      [fg, bg] = code === 39 ? [null, bg] : [fg, null];
    } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      fg = code < 90 ? code - 30 : code - 82;
    } else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) {
      bg = code < 100 ? code - 40 : code - 92;
    }
  }
  return { fg, bg, on };
}

// A colour by number (5;n) or by its parts (2;r;g;b): 0 to 15 as a number, others as CSS.
function extendedColour(numbers) {
  const kind = numbers.shift();
  if (kind === 2) {
    return cssColour(numbers.splice(0, 3));
  }
  const number = kind === 5 ? numbers.shift() : undefined;
  if (!(number >= 0 && number <= 255)) {
    return null;
  }
  if (number < 16) {
    return number;
  }
  if (number >= 232) {
    return cssColour(Array(3).fill(8 + 10 * (number - 232)));
  }
  const level = (step) => (step ? 55 + 40 * step : 0);
  const cube = number - 16;
  return cssColour([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level));
}

function cssColour(parts) {
  const valid = parts.length === 3 && parts.every((part) => part >= 0 && part <= 255);
  return valid ? `rgb(${parts.join(", ")})` : null;
}

// Text in one look; foreign text becomes nothing but text.
function drawRun(text, { fg, bg, on }) {
  if (fg === null && bg === null && on.length === 0) {
    return document.createTextNode(text);
  }
  const span = document.createElement("span");
  span.textContent = text;
  span.className = on.map((name) => `agm-${name}`).join(" ");
  if (fg !== null) {
    span.classList.add(OWN[fg] && !GREYS.includes(fg) ? "agm-fg" : "agm-fg-faint");
  }
  span.style.setProperty("--agm-fg", OWN[fg] ?? fg ?? "");
  span.style.backgroundColor = OWN[bg] ?? bg ?? "";
  return span;
}

// `text` as nodes, and the look it ends with.
function drawText(text, look) {
  const nodes = [];
  // Pieces between sequences stand at even places, the codes of sequences at odd ones.
  text.split(COLOURS).forEach((piece, place) => {
    if (place % 2) {
      look = changeLook(look, piece);
    } else if (piece !== "") {
      nodes.push(drawRun(piece, look));
    }
  });
  return { nodes, look };
}

function createTerminal(pre) {
  const last = document.createElement("span");
  pre.append(last);
  const chunks = [];
  let lines = 0;
  // The unfinished line as it came: a sequence, or "\r\n", may be cut in two.
  let raw = "";
  // The look in which it begins.
  let look = PLAIN;

  function addLines(finished) {
    const kept = finished.slice(-MAX_LINES);
    const node = document.createElement("span");
    const drawn = drawText(kept.map((line) => `${cleanLine(line)}\n`).join(""), look);
    look = drawn.look;
    node.append(...drawn.nodes);
    pre.insertBefore(node, last);
    chunks.push({ node, count: kept.length });
    lines += kept.length;
    while (lines - chunks[0].count >= MAX_LINES) {
      const { node: oldest, count } = chunks.shift();
      oldest.remove();
      lines -= count;
    }
  }

  return function append(text) {
    const following = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 8;
    const parts = (raw + text).split("\n");
    raw = parts.pop();
    if (raw.length > MAX_LINE) {
      parts.push(raw);
      raw = "";
    }
    if (parts.length > 0) {
      addLines(parts);
    }
    last.replaceChildren(...drawText(cleanLine(raw), look).nodes);
    if (following) {
      pre.scrollTop = pre.scrollHeight;
    }
  };
}

function render({ model, el }) {
  const head = document.createElement("div");
  head.className = "agm-live-head";
  head.textContent = model.get("label");
  const pre = document.createElement("pre");
  pre.className = "agm-stream";
  pre.tabIndex = 0;
  pre.setAttribute("role", "log");
  // A log announces what is added; a command's output would never let a screen reader rest.
  pre.setAttribute("aria-live", "off");
  pre.setAttribute("aria-label", model.get("label"));
  const box = document.createElement("div");
  box.className = "agm-live";
  box.append(head, pre);
  el.append(box);

  const append = createTerminal(pre);
  const view = makeId();
  let live = false;

  // Until the backlog has come, what is sent to all views is already part of it.
  function receive(message) {
    if (message.type === "append" && (live ? message.view === undefined : message.view === view)) {
      live = true;
      append(message.text);
    }
  }
  function showState() {
    pre.setAttribute("aria-busy", String(!model.get("finished")));
  }

  model.on("msg:custom", receive);
  model.on("change:finished", showState);
  showState();
  tell(model, { type: "ready", view });
  return () => {
    model.off("msg:custom", receive);
    model.off("change:finished", showState);
  };
}

export default { render };
