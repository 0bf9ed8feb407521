"""Looks at what is ours on a page with axe-core: in each theme, and in the system's own colours."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.pages.lab import NotebookPage

LIGHT = "JupyterLab Light"
FORCED = "forced colours"
# The last one is that of other tests.
LOOKS = ("JupyterLab Dark", "JupyterLab Dark High Contrast", FORCED, LIGHT)
OURS = (
    *(".am-item", ".am-mark", ".am-foot", ".am-panel", ".am-status-item", ".am-follow", ".am-bar"),
    *(".agm-question", ".agm-live"),
)
_AXE = Path(__file__).parents[3] / "labextension/node_modules/axe-core/axe.min.js"
# All that axe finds, of any impact; what moves although the person wants no motion; and what does
# not show that it has the focus.
_FOUND = """async ours => {
  // JupyterLab's body has no height, so that axe would take all in it for hidden.
  document.body.style.overflow = 'visible';
  const isSeen = one => [...document.querySelectorAll(one)].some(each => each.checkVisibility());
  const seen = ours.filter(isSeen);
  const { passes, violations } = await axe.run({ include: seen.map(one => [one]) });
  const looked = passes.some(({ id }) => id === 'color-contrast');
  const moving = document.getAnimations().filter(one => one.effect.target.closest(ours.join()));
  return [
    ...(looked ? [] : ['axe has looked at no colour']),
    ...violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)].join(' ')),
    ...moving.map(({ effect }) => `moves ${effect.target.outerHTML}`)
  ];
}"""
_UNSEEN = """ours => {
  const before = document.activeElement;
  const keyed = 'button:enabled, input:enabled, summary, [tabindex="0"], a[href]';
  const all = document.querySelectorAll(ours.join());
  const reached = [...all].flatMap(own => [own, ...own.querySelectorAll(keyed)])
    .filter(each => each.tabIndex >= 0 && each.checkVisibility());
  const unseen = reached.filter(each => {
    each.focus({ preventScroll: true, focusVisible: true });
    const { outlineStyle, outlineWidth } = getComputedStyle(each);
    return document.activeElement === each && (outlineStyle === 'none' || outlineWidth === '0px');
  });
  before?.focus({ preventScroll: true });
  return unseen.map(each => `no focus ring ${each.outerHTML.slice(0, 200)}`);
}"""

# Keeps what the Tab key must reach, place by place (of radio buttons, the chosen one); returns what
# only a mouse can use.
_USED = """ours => {
  const control = ':is(button, input, select, textarea, summary, a[href], [role=button])';
  const used = `${control}, [tabindex]`;
  const places = [...document.querySelectorAll(ours.join())]
    .filter(each => each.checkVisibility() && !each.parentElement.closest(ours.join()));
  const other = places.flatMap(place => [...place.querySelectorAll('*')])
    .filter(each => getComputedStyle(each).cursor === 'pointer')
    .filter(each => !each.closest(`${control}, label`));
  window.keyed = places.map(place => [place, ...place.querySelectorAll(used)]
    .filter(each => each.tabIndex >= 0 && !each.disabled && each.checkVisibility())
    .filter(each => each.type !== 'radio' || each.checked));
  const kept = places.flatMap(place => [...place.querySelectorAll(control)])
    .filter(each => each.tabIndex < 0 && !each.disabled);
  return [...other, ...kept].filter(each => each.checkVisibility())
    .map(each => `only for the mouse ${each.outerHTML.slice(0, 200)}`);
}"""
# The steps of a walk through a place: a date has a day, a month, a year and a calendar.
_STEPS = "n => keyed[n].reduce((sum, { type }) => sum + (type === 'date' ? 4 : 1), 0)"
# Gives the focus to the first thing of a place.
_BEGIN = "n => { keyed[n][0]?.focus({ preventScroll: true, focusVisible: true }) }"
# Whether the focus is in the place; notes whether it shows at first (later a part may have it).
_STEP = """n => {
  const index = keyed[n].indexOf(document.activeElement);
  if (index >= 0) {
    const { outlineStyle, outlineWidth } = getComputedStyle(keyed[n][index]);
    const shows = outlineStyle !== 'none' && outlineWidth !== '0px';
    keyed[n][index].dataset.keyed ??= shows ? 'seen' : 'unseen';
  }
  return index >= 0 && index < keyed[n].length - 1;
}"""
_LEFT = """() => keyed.flat().filter(each => {
  const { keyed } = each.dataset;
  delete each.dataset.keyed;
  return each.isConnected && each.checkVisibility() && keyed !== 'seen';
}).map(each => `not reached by Tab, or without a ring ${each.outerHTML.slice(0, 200)}`)"""

# Keeps what of ours acts when it is pressed, and notes what JupyterLab does to the notebook.
_ACTING = """() => {
  window.ran ??= (window.jupyterapp.commands.commandExecuted.connect(
    (_, { id }) => id.startsWith('notebook:') && window.ran.push(id)), []);
  window.ran.length = 0; // what other tests ran on this page
  const places = ':is(.agm-question, .agm-live, .am-mark, .am-foot, .am-review, .am-stop)';
  const pressed = ':is(button:enabled, summary, [tabindex], [type=radio], [type=checkbox])';
  window.acting = [...document.querySelectorAll(`${places} ${pressed}, button.am-stop`)]
    .filter(each => each.checkVisibility());
  return window.acting.length;
}"""


def use_theme(page: NotebookPage, theme: str) -> None:
    """Give the page a theme of JupyterLab."""
    change = f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})"
    page.page.evaluate(f"async () => {{ await {change} }}")
    page.page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
    page.page.wait_for_selector("#jupyterlab-splash", state="detached")  # it would cover all


def unreachable(page: NotebookPage) -> list[str]:
    """Return what is ours and cannot be reached by the Tab key, or does not show the focus then."""
    found = page.page.evaluate(_USED, OURS)
    for place in range(page.page.evaluate("keyed.length")):
        page.page.evaluate(_BEGIN, place)
        for _ in range(page.page.evaluate(_STEPS, place)):
            if page.page.evaluate(_STEP, place):
                page.page.keyboard.press("Tab")
    return found + page.page.evaluate(_LEFT)


def taken_keys(page: NotebookPage) -> list[str]:
    """Press JupyterLab's keys where something of ours has the focus; return what they did."""
    count = page.page.evaluate(_ACTING)
    assert count, "nothing of ours can have the focus"
    for place in range(count):
        page.page.evaluate("n => acting[n].focus({ preventScroll: true })", place)
        for key in "ddmrxb":  # delete the cell, make it another kind, cut it, insert one below
            page.page.keyboard.press(key)
    return page.page.evaluate("() => window.ran.splice(0)")


def faults(page: NotebookPage, picture: str = "", *, looks: Sequence[str] = LOOKS) -> list[str]:
    """Return what is wrong with our elements on the page; leave a picture of each look."""
    page.page.evaluate(_AXE.read_text(encoding="utf-8"))
    page.page.emulate_media(reduced_motion="reduce")
    page.page.keyboard.press("Shift")  # the keyboard is used: what has the focus shows it
    found = []
    for look in looks:
        forced = look == FORCED
        use_theme(page, LIGHT if forced else look)
        page.page.emulate_media(forced_colors="active" if forced else "none")
        each = page.page.evaluate(_FOUND, OURS) + page.page.evaluate(_UNSEEN, OURS)
        found += [f"{look}: {fault}" for fault in each]
        if picture:
            page.shoot(f"{picture}_{look}")
    page.page.emulate_media(reduced_motion="no-preference")
    return found
