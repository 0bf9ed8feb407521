// The page's half of CardWidget: a bar, some lines, and buttons that say what the person wants.

function render({ model, el }) {
  const box = make("div", "agm-live agm-card");
  const bar = document.createElement("progress");
  bar.max = 1;
  bar.setAttribute("aria-label", "rows done");
  const text = make("div", "agm-card-text");
  const row = make("div", "agm-buttons");
  const pause = makeButton("Pause");
  const stop = makeButton("Stop");
  row.append(pause, stop);
  const wish = (what) => tell(model, { type: "wish", id: model.get("question_id"), wish: what });
  pause.addEventListener("click", () => wish(model.get("state") === "paused" ? "go on" : "pause"));
  stop.addEventListener("click", () => wish("stop"));

  const show = () => {
    const state = model.get("state");
    const share = model.get("share");
    if (share < 0) {
      bar.removeAttribute("value");
    } else {
      bar.value = share;
    }
    text.textContent = model.get("text");
    box.dataset.state = state;
    pause.textContent = state === "paused" ? "Go on" : "Pause";
    pause.disabled = stop.disabled = state === "stopping";
  };
  keepKeys(box);
  box.append(bar, text, row);
  el.append(box);
  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
