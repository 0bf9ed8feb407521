/** Keeps the keys that are pressed in our own elements from the notebook, in which D D deletes a cell. */

import type { INotebookTracker } from '@jupyterlab/notebook';

/** JupyterLab looks for it on what has the focus, and from there upwards, before it takes a key. */
const KEPT = 'data-lm-suppress-shortcuts';
/** In which something is answered, written or changed. */
const ACTS =
  '.agm-question:not([data-answered]), .agm-live, .am-foot, .am-review, .am-stop, .am-mark, .am-bar';
/** What is only read keeps no key but the arrows that scroll it. */
const READ = '.am-item';
/** Beside the notebooks, where JupyterLab's shortcuts do not act on cells. */
const BESIDE = '.am-panel';
const WRITTEN = 'input, textarea';

/** Keep the keys of all that is ours; Esc leads back to the notebook where nothing else takes it. */
export function keepKeys(tracker: INotebookTracker): void {
  window.addEventListener(
    'keydown',
    event => {
      const { target } = event;
      if (target instanceof HTMLElement && target.closest(`${ACTS}, ${READ}`)) {
        target.toggleAttribute(KEPT, isKept(event, target));
      }
    },
    true
  );
  document.addEventListener('keydown', ({ defaultPrevented, isComposing, key, target }) => {
    const panel = tracker.currentWidget;
    if (
      key === 'Escape' &&
      !defaultPrevented &&
      !isComposing &&
      target instanceof HTMLElement &&
      (target.closest(BESIDE) || (target.closest(`${ACTS}, ${READ}`) && panel?.node.contains(target))) &&
      !(target.matches('[type=search]') && (target as HTMLInputElement).value) // which Esc empties
    ) {
      target.blur(); // in command mode JupyterLab leaves the focus where it is inside the notebook
      panel?.content.activate();
    }
  });
}

/** Our shortcuts (Alt+Shift) reach JupyterLab from everywhere, and so does Ctrl+S. */
function isKept(event: KeyboardEvent, target: HTMLElement): boolean {
  const { altKey, ctrlKey, key, metaKey, shiftKey } = event;
  const isCommand = ctrlKey || metaKey;
  if (altKey && shiftKey) {
    return false;
  }
  if (target.closest(ACTS) === null) {
    return !isCommand && key.startsWith('Arrow') && scrolls(target);
  }
  return !isCommand || key === 'Enter' || (key !== 's' && target.matches(WRITTEN));
}

function scrolls({ clientHeight, clientWidth, scrollHeight, scrollWidth }: HTMLElement): boolean {
  return scrollHeight > clientHeight || scrollWidth > clientWidth;
}
