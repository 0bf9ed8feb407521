/** Where the person was before a question took the focus, and how they come back to it. */

import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { OPEN_QUESTION } from './elements.js';

/** How a question tells that it was answered while it had the focus. */
const ANSWERED = 'agent-magics-answered';
const QUESTION = '.agm-question';

interface Place {
  panel: NotebookPanel;
  cell: string | undefined;
  mode: 'command' | 'edit';
}

/** Bring the focus to the next question, or else back to the cell where the person was. */
export function keepPlace(tracker: INotebookTracker): void {
  let place: Place | null = null;
  const remember = (): void => {
    const panel = tracker.currentWidget;
    if (panel !== null) {
      const { activeCell, mode } = panel.content;
      place = { panel, cell: activeCell?.model.id, mode };
    }
  };
  // A click makes its cell the active one before it moves the focus, so it is seen earlier.
  document.addEventListener(
    'pointerdown',
    ({ target }) => {
      if (!isInQuestion(target)) {
        place = null;
      } else if (!isInQuestion(document.activeElement)) {
        remember();
      }
    },
    true
  );
  document.addEventListener(
    'focusin',
    ({ target, relatedTarget }) => {
      if (isInQuestion(target)) {
        place ?? remember();
      } else if (isInQuestion(relatedTarget)) {
        place = null;
      }
    },
    true
  );
  document.addEventListener(ANSWERED, () => {
    const next = document.querySelector<HTMLElement>(OPEN_QUESTION);
    const back = place;
    if (next !== null) {
      next.focus();
    } else if (back !== null) {
      goBack(back);
    }
  });
}

function isInQuestion(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest(QUESTION) !== null;
}

function goBack({ panel, cell, mode }: Place): void {
  if (panel.isDisposed) {
    return;
  }
  const { content } = panel;
  const index = content.widgets.findIndex(({ model }) => model.id === cell);
  if (index >= 0) {
    content.activeCellIndex = index;
  }
  content.mode = mode;
  content.activate();
}
